#include "tools/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
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

/// The tokens so far and the cache over all but the newest of them.
class Continuation {
 public:
  Continuation(LanguageModel& model, std::vector<std::int32_t> prompt, std::int64_t more)
      : model_(model),
        tokens_(std::move(prompt)),
        cache_(model.shape(), static_cast<std::int64_t>(tokens_.size()) + more) {}

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  void append(std::int32_t token) { tokens_.push_back(token); }

  /// Logits [V] of the token that comes next.
  Tensor next_logits() {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    if (cache_.length + (count - seen_) > model_.shape().context) restart();
    const Tensor fresh = Tensor::from(
        std::span<const std::int32_t>(tokens_).subspan(static_cast<std::size_t>(seen_)),
        {count - seen_});
    seen_ = count;
    return model_.next_logits(fresh, cache_);
  }

 private:
  /// Empties the cache; the next pass reads the last half context again.
  void restart() {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t half = std::max<std::int64_t>(1, model_.shape().context / 2);
    seen_ = std::max<std::int64_t>(0, count - half);
    cache_.length = 0;
  }

  LanguageModel& model_;
  std::vector<std::int32_t> tokens_;
  KeyValueCache cache_;
  std::int64_t seen_ = 0;
};

/// Continues one prompt. `write` may be empty.
Generated continue_prompt(LanguageModel& model, const Job& job, const Prompt& prompt,
                          const std::function<void(std::string_view)>& write) {
  const GenerateOptions& options = job.options;
  const RandomStream random(options.seed, "sampling");
  // Ids beyond the tokenizer's have no text.
  const std::int64_t choices =
      job.tokenizer ? job.tokenizer->vocab_size() : model.shape().vocab_size;
  std::optional<TextStream> stream;
  if (write) stream.emplace(*job.tokenizer, prompt.ids);
  Continuation text(model, prompt.ids, options.tokens);
  Generated result;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const Tensor logits = text.next_logits();
    const std::vector<float> values = logits.to_vector<float>();
    const auto token =
        static_cast<std::int32_t>(sample(std::span(values).first(static_cast<std::size_t>(choices)),
                                         options.sampling, random, static_cast<std::uint64_t>(i)));
    result.log_probabilities.push_back(log_probabilities_of(logits.reshape({1, logits.numel()}),
                                                            Tensor::from(std::vector{token}, {1}))
                                           .item<float>());
    text.append(token);
    if (job.stop.contains(token)) break;
    if (stream) write(stream->push(token));
  }
  if (stream) write(stream->finish());
  result.ids = text.tokens();
  return result;
}

}  // namespace

std::vector<Generated> generate(const GenerateOptions& options,
                                const std::function<void(std::string_view)>& write) {
  const Job job = prepare_job(options, write != nullptr);
  std::vector<Generated> results(job.prompts.size());
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
    const bool writes = write && context().rank() == 0;
    for (std::size_t i = 0; i < job.prompts.size(); ++i) {
      const Prompt& prompt = job.prompts[i];
      if (writes && i > 0) write("\n");
      if (writes && !options.chat) {
        write(prompt.text.empty() ? job.tokenizer->decode(prompt.ids) : prompt.text);
      }
      Generated generated = continue_prompt(
          model, job, prompt, writes ? write : std::function<void(std::string_view)>());
      if (context().rank() == 0) results[i] = std::move(generated);
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
