// RunData: the tokens and the tokenizer of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "tools/data/loader.h"
#include "tools/data/staged_loader.h"
#include "tools/eval/hellaswag.h"
#include "tools/generate/stop_tokens.h"
#include "tools/train/continued_texts.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera {

/// Tokens that a run is validated on.
struct ValidationTokens {
  /// An entry's of data.validation; empty: data.val.
  std::string name;
  TokenLoader loader;
};

/// Opened and checked against the model. All ranks of a process share it.
struct RunData {
  /// Raises Error, with the place of the key, if a file cannot be used.
  explicit RunData(const ResolvedConfig& run);

  TokenLoader train;
  std::vector<ValidationTokens> validation;
  /// Saved with the model. Null if neither the data nor the model that training starts from has one.
  std::unique_ptr<Tokenizer> tokenizer;
  /// Those of the model that training starts from, and the end of a turn in the data. Saved with the model.
  StopTokens stop;
  /// With train.sample_every.
  std::optional<ContinuedTexts> samples;
  /// The questions of data.hellaswag.
  std::vector<Question> questions;
};

/// The rows of the tokens that `path` names, without a reference. Raises Error if they are of pairs and the
/// objective is not, or the other way round.
RowSource open_rows(const std::filesystem::path& path, const ResolvedConfig& run,
                    SampleOrder order);

/// The loader's batches, which must outlive them. Step `first_step` has batch 0.
BatchSource batches_of(const TokenLoader& loader, std::int64_t first_step, const BatchSizes& sizes);
/// The same, and the next rows are loaded early.
BatchSource batches_of(StagedLoader& loader, std::int64_t first_step);

/// "data/train.bin: 1000 steps of 1024 tokens, 1.02 epochs of 8000 windows". Rows of documents have
/// the share of their places that hold a token.
std::string describe_data(const ResolvedConfig& run, const RunData& data);

}  // namespace tessera
