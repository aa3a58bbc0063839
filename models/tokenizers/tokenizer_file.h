// Reading and writing tokenizer.json in the format of Hugging Face's tokenizers library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

/// A BPE tokenizer without merges.
struct TokenizerFile {
  /// The text of every token, by id.
  std::vector<std::string> vocabulary;
  /// Whether the vocabulary spells bytes, as GPT-2's does: see spelling_of_byte.
  bool byte_level = false;
};

/// Raises Error with the path if the file is missing or damaged, if its ids are not 0, 1, 2, ..., or
/// if it is a tokenizer that this struct cannot describe.
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);
/// Writes the file atomically.
void write_tokenizer_file(const std::filesystem::path& path, const TokenizerFile& tokenizer);

/// The character that stands for a byte in a byte-level vocabulary, as UTF-8. Printable bytes of
/// Latin-1 stand for themselves; the others, in ascending order, are U+0100, U+0101, ... (Radford et
/// al. 2019, bytes_to_unicode in the published code.)
std::string spelling_of_byte(unsigned char byte);

}  // namespace tessera
