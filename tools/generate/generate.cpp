#include "tools/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "models/hugging_face.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/generate/stop_tokens.h"
#include "tools/generate/text_stream.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// What every rank knows before it loads the model.
struct Job {
  const GenerateOptions& options;
  std::unique_ptr<Tokenizer> tokenizer;  // may be null
  StopTokens stop;
  std::vector<Prompt> prompts;  // all with ids
};

Job prepare_job(const GenerateOptions& options, bool writes) {
  check_sampling(options.sampling);
  check(options.tokens >= 0, "--tokens is {}; expected at least 0", options.tokens);
  check(options.batch >= 1, "--batch is {}; expected at least 1", options.batch);
  const fs::path folder = model_folder(options.model);
  Job job{.options = options, .tokenizer = {}, .stop = stop_tokens_of(folder), .prompts = {}};
  job.prompts = options.prompts;
  if (job.prompts.empty()) job.prompts.push_back({.text = options.prompt, .ids = {}});
  const bool has_text = std::any_of(job.prompts.begin(), job.prompts.end(),
                                    [](const Prompt& prompt) { return prompt.ids.empty(); });
  if (has_text || writes) job.tokenizer = Tokenizer::load(folder);
  std::optional<ChatTemplate> chat;
  if (options.chat) chat = ChatTemplate::of(folder);
  for (Prompt& prompt : job.prompts) {
    if (!prompt.ids.empty()) continue;
    prompt.ids = chat ? job.tokenizer->encode(as_conversation(*chat, options.system, prompt.text))
                      : job.tokenizer->with_special_tokens(job.tokenizer->encode(prompt.text));
    check(!prompt.ids.empty(), "the prompt is empty: give at least one character to continue");
  }
  add_stop_tokens(job.stop, options.stop, job.tokenizer.get());
  return job;
}

/// A text in the making: its tokens, and the cache over all but the newest of them.
class Continuation {
 public:
  Continuation(const Job& job, const TransformerShape& shape, const Prompt& prompt)
      : job_(job),
        context_(shape.context),
        result_{.ids = prompt.ids, .log_probabilities = {}},
        cache_(shape, static_cast<std::int64_t>(prompt.ids.size()) + job.options.tokens) {}

  bool finished() const { return stopped_ || new_tokens() >= job_.options.tokens; }
  const Generated& result() const { return result_; }

  /// The tokens that the model has not seen. When its context is full it reads the last half again.
  NewTokens next() {
    const auto count = static_cast<std::int64_t>(result_.ids.size());
    if (cache_.length + (count - seen_) > context_) {
      seen_ = std::max<std::int64_t>(0, count - std::max<std::int64_t>(1, context_ / 2));
      cache_.length = 0;
    }
    const auto fresh =
        std::span<const std::int32_t>(result_.ids).subspan(static_cast<std::size_t>(seen_));
    const Tensor tokens = Tensor::from(fresh, {count - seen_});
    seen_ = count;
    return {tokens, &cache_};
  }

  /// Chooses the next token by its logits [1, V]. Returns it unless it is a stop token.
  std::optional<std::int32_t> add_token(const Tensor& logits) {
    const std::vector<float> values = logits.to_vector<float>();
    // Ids beyond the tokenizer's have no text.
    const auto choices =
        static_cast<std::size_t>(job_.tokenizer ? job_.tokenizer->vocab_size() : logits.size(1));
    const auto token = static_cast<std::int32_t>(sample(
        std::span(values).first(choices), job_.options.sampling,
        RandomStream(job_.options.seed, "sampling"), static_cast<std::uint64_t>(new_tokens())));
    result_.log_probabilities.push_back(
        log_probabilities_of(logits, Tensor::from(std::vector{token}, {1})).item<float>());
    result_.ids.push_back(token);
    stopped_ = job_.stop.contains(token);
    return stopped_ ? std::nullopt : std::optional(token);
  }

 private:
  std::int64_t new_tokens() const {
    return static_cast<std::int64_t>(result_.log_probabilities.size());
  }

  const Job& job_;
  std::int64_t context_;
  Generated result_;
  KeyValueCache cache_;
  std::int64_t seen_ = 0;
  bool stopped_ = false;
};

/// The texts of a job in their order. The first that is not complete goes out as it grows, those
/// after it wait.
class Output {
 public:
  Output(const Job& job, std::function<void(std::string_view)> write)
      : write_(std::move(write)), texts_(job.prompts.size()) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const Prompt& prompt = job.prompts[i];
      texts_[i].stream.emplace(*job.tokenizer, prompt.ids);
      if (i > 0) texts_[i].waiting.push_back('\n');
      if (job.options.chat) continue;
      texts_[i].waiting += prompt.text.empty() ? job.tokenizer->decode(prompt.ids) : prompt.text;
    }
  }

  void push(std::size_t i, std::int32_t token) {
    texts_[i].waiting += texts_[i].stream->push(token);
    flush();
  }
  void finish(std::size_t i) {
    texts_[i].waiting += texts_[i].stream->finish();
    texts_[i].complete = true;
    flush();
  }

 private:
  struct Text {
    std::optional<TextStream> stream;
    std::string waiting;
    bool complete = false;
  };

  void flush() {
    for (; first_ < texts_.size(); ++first_) {
      Text& text = texts_[first_];
      if (!text.waiting.empty()) write_(std::exchange(text.waiting, {}));
      if (!text.complete) return;
    }
  }

  std::function<void(std::string_view)> write_;
  std::vector<Text> texts_;
  std::size_t first_ = 0;  // that is not complete
};

/// Continues the prompts [first, last) at the same time. `output` may be null.
std::vector<Generated> continue_prompts(LanguageModel& model, const Job& job, std::size_t first,
                                        std::size_t last, Output* output) {
  std::vector<Continuation> texts;
  for (std::size_t i = first; i < last; ++i) texts.emplace_back(job, model.shape(), job.prompts[i]);
  const auto finish = [&](std::size_t i) {
    if (output != nullptr) output->finish(first + i);
  };
  std::vector<std::size_t> growing;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i].finished() ? finish(i) : growing.push_back(i);
  }
  while (!growing.empty()) {
    std::vector<NewTokens> sequences;
    for (const std::size_t i : growing) sequences.push_back(texts[i].next());
    const Tensor logits = model.next_logits(sequences);
    std::int64_t row = 0;
    for (const std::size_t i : growing) {
      const auto token = texts[i].add_token(logits.slice(row, row + 1));
      if (token && output != nullptr) output->push(first + i, *token);
      if (texts[i].finished()) finish(i);
      ++row;
    }
    std::erase_if(growing, [&](std::size_t i) { return texts[i].finished(); });
  }
  std::vector<Generated> results;
  for (const Continuation& text : texts) results.push_back(text.result());
  return results;
}

}  // namespace

std::vector<Generated> generate(const GenerateOptions& options,
                                const std::function<void(std::string_view)>& write) {
  const Job job = prepare_job(options, write != nullptr);
  std::vector<Generated> results;
  const InferenceOptions inference = {.model = options.model,
                                      .device = options.device,
                                      .threads = options.threads,
                                      .ranks = options.ranks,
                                      .dtype = options.dtype};
  run_model(inference, [&](LanguageModel& model) {
    const std::int64_t vocabulary = model.shape().vocab_size;
    check(!job.tokenizer || job.tokenizer->vocab_size() <= vocabulary,
          "{}: vocabulary mismatch: the tokenizer has {} tokens, the model {}",
          model_folder(options.model).string(), job.tokenizer ? job.tokenizer->vocab_size() : 0,
          vocabulary);
    for (const Prompt& prompt : job.prompts) check_ids(prompt.ids, vocabulary);
    const bool first_rank = context().rank() == 0;
    std::optional<Output> output;
    if (write && first_rank) output.emplace(job, write);
    const auto at_a_time = static_cast<std::size_t>(options.batch);
    for (std::size_t first = 0; first < job.prompts.size(); first += at_a_time) {
      const std::size_t last = std::min(job.prompts.size(), first + at_a_time);
      auto some = continue_prompts(model, job, first, last, output ? &*output : nullptr);
      if (first_rank) std::move(some.begin(), some.end(), std::back_inserter(results));
    }
  });
  return results;
}

std::string to_json(const Generated& generated, bool all) {
  std::string text = fmt::format("{{\"ids\": [{}]", fmt::join(generated.ids, ", "));
  if (all) {
    text +=
        fmt::format(", \"log_probabilities\": [{}]", fmt::join(generated.log_probabilities, ", "));
  }
  return text + "}";
}

}  // namespace tessera
