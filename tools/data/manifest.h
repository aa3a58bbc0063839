// manifest.json: the description of a folder of prepared data.
//
// `tessera prepare` writes it last. A folder without it is not finished.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/mark_file.h"
#include "tools/data/token_file.h"

namespace tessera {

struct Manifest {
  /// A source text, or a token file of the folder.
  struct File {
    std::string path;
    std::int64_t bytes = 0;
    std::uint64_t checksum = 0;  // FNV-1a of all bytes
  };

  std::string tokenizer;  // "bytes", "chars", or the folder of the tokenizer
  std::int64_t vocab_size = 0;
  std::int64_t train_tokens = 0;
  std::int64_t val_tokens = 0;
  std::vector<File> inputs;
  std::vector<File> outputs;

  static constexpr const char* kFileName = "manifest.json";
};

/// Whether `file` is the name of a token file of a set, "train" or "val": "train.bin", or one of
/// "train_000000.bin" and so on.
bool is_shard_of(const std::string& set, const std::string& file);

/// Size and checksum of a file on disk, under the name `name`.
Manifest::File describe_file(const std::filesystem::path& path, const std::string& name);

/// Writes directory / "manifest.json" atomically.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);

/// Raises Error with the path and the entry if the file is missing, an entry is missing, of another
/// type or out of range, or the sizes of the token files contradict the numbers of tokens.
Manifest read_manifest(const std::filesystem::path& directory);

/// Opens a token file for training. Raises Error if a token is not below `vocab_size`. If a manifest
/// next to the file lists it, the file must have the listed size and checksum. The checksum is
/// computed up to 1 GiB, which takes about a second; larger files are compared by size only.
TokenFile open_verified(const std::filesystem::path& path, std::int64_t vocab_size);

/// Opens the mark file of a token file in the same way; none if it has none.
std::optional<MarkFile> open_verified_marks(const TokenFile& tokens);

}  // namespace tessera
