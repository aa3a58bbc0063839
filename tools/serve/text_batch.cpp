#include "tools/serve/text_batch.h"

#include <exception>
#include <utility>

#include "runtime/error.h"

namespace tessera {

TextBatch::TextBatch(const Tokenizer& tokenizer, std::int64_t rows, std::int64_t queue)
    : tokenizer_(tokenizer), rows_(rows), queue_(queue) {}

TextBatch::Answer TextBatch::submit(std::vector<TextJob> jobs) {
  {
    const std::lock_guard lock(mutex_);
    drop_cancelled();
    const auto wanted = static_cast<std::int64_t>(waiting_.size() + jobs.size());
    if (ends_) return Answer::ended;
    if (wanted > queue_) return Answer::full;
    for (TextJob& job : jobs) waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return Answer::accepted;
}

void TextBatch::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
}

TextBatch::Load TextBatch::load() const {
  const std::lock_guard lock(mutex_);
  Load load = load_;
  load.waiting = static_cast<std::int64_t>(waiting_.size());
  return load;
}

void TextBatch::run(LanguageModel& model) {
  while (prepare(model.shape())) step(model);
}

void TextBatch::drop_cancelled() {
  load_.cancelled += static_cast<std::int64_t>(
      std::erase_if(waiting_, [](const TextJob& job) { return job.cancelled->load(); }));
}

bool TextBatch::prepare(const TransformerShape& shape) {
  std::unique_lock lock(mutex_);
  load_.finished += static_cast<std::int64_t>(
      std::erase_if(running_, [](const RunningText& text) { return text.finished(); }));
  load_.cancelled += static_cast<std::int64_t>(
      std::erase_if(running_, [](const RunningText& text) { return text.cancelled(); }));
  load_.running = static_cast<std::int64_t>(running_.size());
  if (running_.empty()) changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
  drop_cancelled();
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < rows_) {
    running_.emplace_back(tokenizer_, shape, std::move(waiting_.front()));
    waiting_.pop_front();
  }
  load_.running = static_cast<std::int64_t>(running_.size());
  return !ends_ || !running_.empty();
}

void TextBatch::step(LanguageModel& model) {
  try {
    read_on(model);
  } catch (const std::exception& error) {
    for (RunningText& text : running_) text.fail(error.what());
  }
}

void TextBatch::read_on(LanguageModel& model) {
  std::vector<RunningText*> texts;
  std::vector<NewTokens> sequences;
  std::int64_t room = kPromptTokens;
  for (RunningText& text : running_) {
    GrowingText& growing = text.growing();
    if (text.finished()) {
      text.deliver_end();
      continue;
    }
    const bool reads_prompt = growing.unread() > 1;
    if (reads_prompt && room == 0) continue;
    texts.push_back(&text);
    sequences.push_back(growing.read(reads_prompt ? room : 1));
    if (reads_prompt) room -= sequences.back().tokens.numel();
  }
  if (sequences.empty()) return;
  const Tensor logits = model.next_logits(sequences);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::int64_t last = first + sequences[i].rows;
    try {
      texts[i]->add(logits.slice(first, last));
    } catch (const Error& error) {  // a token without a text
      texts[i]->fail(error.what());
    }
    first = last;
  }
}

}  // namespace tessera
