// From texts to a folder of token files.
//
//   texts -> documents -> tokens, on all cores -> train.bin, val.bin, tokenizer.json, manifest.json
//
// Every document ends with the tokenizer's end-of-text token, if it has one. Memory does not grow with
// the corpus: tokens wait on disk until their number is known (token_spool.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/enum_names.h"
#include "tools/data/manifest.h"

namespace tessera {

/// Which tokens are for validation.
enum class ValidationSplit {
  automatic,  // documents if there are at least 100, else tails
  documents,  // whole documents, spread evenly
  tails,      // the end of every document
};
template <>
inline constexpr EnumNames<ValidationSplit> kEnumNames<ValidationSplit> = {
    "split", {"auto", "documents", "tails"}};

struct PrepareProgress {
  std::int64_t bytes = 0, all_bytes = 0;
  std::int64_t tokens = 0;
};

struct PrepareOptions {
  /// Files and folders; see find_text_files (input_files.h).
  std::vector<std::filesystem::path> inputs;
  /// "bytes", "chars", a folder with a tokenizer (models/tokenizers/tokenizer.h), or a model: a run or a name on
  /// the hub.
  std::string tokenizer;
  std::filesystem::path out;
  /// The share of the documents, or of each document's tokens, that becomes the validation set.
  double val_fraction = 0.1;
  ValidationSplit split = ValidationSplit::automatic;
  /// If there are any, their documents are the validation set, and nothing is split.
  std::vector<std::filesystem::path> val_inputs = {};
  /// The string values to take from structured files; see documents.h.
  std::vector<std::string> keys = {};
  /// The token behind every document: "auto", "none", or the token as the vocabulary spells it.
  /// "auto" is the first that the vocabulary has of <|endoftext|>, <|end_of_text|> and </s>.
  std::string end_of_text = "auto";
  /// The inputs are samples for fine-tuning (samples.h), of which only the answers are trained: a mark
  /// file lies next to each token file. They are split by documents.
  bool answers_only = false;
  /// Leaves out every document whose text an earlier one has, of the training set or the validation set.
  bool drop_repeated = false;
  /// A token file has at most so many tokens. If there are more, files are numbered:
  /// train_000000.bin and so on.
  std::int64_t shard_tokens = 1'000'000'000;
  /// Called now and then.
  std::function<void(const PrepareProgress&)> progress = {};
  /// Called at the end with a line for each kind of odd documents (odd_documents.h).
  std::function<void(const std::string& line)> report = {};
};

/// Writes the token files, the tokenizer and manifest.json to `options.out`. It replaces files there
/// only when all are complete. If an earlier call for the same inputs was killed, goes on behind the
/// last input file that it completed. Raises Error if an input is not a readable text.
Manifest prepare(const PrepareOptions& options);

}  // namespace tessera
