// Samples: texts that a model in training continues, for a person to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/tokenizers/tokenizer.h"
#include "tools/generate/continuation.h"
#include "tools/train/resolve.h"

namespace tessera {

struct ContinuedText {
  std::string prompt;
  /// The prompt and its continuation, in valid UTF-8.
  std::string text;
};

/// The texts of the section `sample`, in tokens.
class ContinuedTexts {
 public:
  /// `tokenizer` may be null; if it is not, it must outlive this. Raises Error, with the place of the
  /// key, if there is no tokenizer, or if it cannot spell a prompt.
  ContinuedTexts(const ResolvedConfig& run, const Tokenizer* tokenizer, const StopTokens& stop);

  /// The continuations that `tessera generate` gives with this model. Every rank makes the same call
  /// and gets the same texts. It records no gradient and draws no random number of the training.
  std::vector<ContinuedText> of(LanguageModel& model) const;

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::string> prompts_;
  std::vector<std::vector<std::int32_t>> ids_;
  ContinueOptions options_;
};

/// The beginning of the text in quotes, for the console: at most 60 bytes in one line. Line breaks and
/// tabs become spaces; other control characters are spelled, and take more.
std::string short_form(const ContinuedText& sample);
/// All of the text, its lines indented and without control characters, for log.txt.
std::string long_form(const ContinuedText& sample);

}  // namespace tessera
