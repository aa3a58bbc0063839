// Continuous batching: texts join a model's batch, and leave it, between two tokens.
//
//   submit -> waiting -> running -> the last part is delivered
//
// Up to `rows` texts run, each as if it were alone: the bits of a text do not depend on the others
// (GrowingText). A pass of the model reads the last token of each text that has read its prompt, and up
// to kPromptTokens tokens of prompts, the oldest text's first. So a long prompt delays the others by a
// short time only, and needs little memory.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "tools/serve/text_job.h"

namespace tessera {

class TextBatch {
 public:
  static constexpr std::int64_t kPromptTokens = 256;

  /// At most `rows` texts run, and at most `queue` wait.
  TextBatch(const Tokenizer& tokenizer, std::int64_t rows, std::int64_t queue);

  enum class Answer { accepted, full, ended };
  /// The texts of a request join those that wait, all or none. Any thread may call it.
  Answer submit(std::vector<TextJob> jobs);
  /// Accepts no more texts. run() returns when those that were accepted are finished.
  void end();

  struct Load {
    std::int64_t running = 0, waiting = 0;
    /// Texts that ran to their end, and those without a client.
    std::int64_t finished = 0, cancelled = 0;
  };
  Load load() const;

  /// Continues texts until end(). An error ends the text that it is about, or all texts of the pass.
  void run(LanguageModel& model);

 private:
  /// Lets texts leave and join, and waits while no text runs. False at the end.
  bool prepare(const TransformerShape& shape);
  void drop_cancelled();
  void step(LanguageModel& model);
  /// One pass of the model.
  void read_on(LanguageModel& model);

  const Tokenizer& tokenizer_;
  const std::int64_t rows_, queue_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TextJob> waiting_;     // guarded
  Load load_;                       // guarded; `waiting` is not kept here
  bool ends_ = false;               // guarded
  std::list<RunningText> running_;  // the model's thread
};

}  // namespace tessera
