// A text that a client waits for: the prompt, the options, and the function that takes the parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "tools/generate/growing_text.h"
#include "tools/generate/text_stream.h"
#include "tools/serve/stop_text.h"

namespace tessera {

/// The reason why a text ends: a stop token or stop text, its number of tokens, or an error.
enum class Finish { stop, length, error };

/// The gain of a text by a pass of the model.
struct TextPart {
  /// Whole characters.
  std::string text;
  /// The scores of the tokens that the pass added or, if the prompt has scores, read.
  std::vector<TokenScore> scores;
  /// Set in the last part.
  std::optional<Finish> finish;
  /// New tokens so far, a stop token included.
  std::int64_t tokens = 0;
  /// The reason for Finish::error.
  std::string message;
};

struct TextJob {
  /// At least one token of the model's vocabulary.
  std::vector<std::int32_t> prompt;
  /// Prompt and new tokens fit into the model's context.
  GrowthOptions growth;
  std::vector<std::string> stop_texts;
  /// Set by any thread once the client is gone.
  std::shared_ptr<std::atomic<bool>> cancelled;
  /// Called by the model's thread, which waits for it.
  std::function<void(TextPart)> deliver;
};

/// A text that the model works on.
class RunningText {
 public:
  RunningText(const Tokenizer& tokenizer, const TransformerShape& shape, TextJob job);

  bool cancelled() const { return *job_.cancelled; }
  bool finished() const { return failed_ || growing_.finished() || stop_.stopped(); }
  GrowingText& growing() { return growing_; }
  /// Takes the logits of the tokens that the model has read, and delivers the new text.
  void add(const Tensor& logits);
  /// Delivers the last part of a text that needs no pass: its parts are empty.
  void deliver_end();
  /// Ends the text with an error.
  void fail(const std::string& message);

 private:
  TextJob job_;
  GrowingText growing_;
  TextStream stream_;
  StopText stop_;
  std::size_t delivered_ = 0;  // scores
  bool failed_ = false;
};

}  // namespace tessera
