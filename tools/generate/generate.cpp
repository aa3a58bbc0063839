#include "tools/generate/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "tools/generate/stop_tokens.h"
#include "tools/generate/text_stream.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Known to every rank before it loads the model.
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
  const fs::path folder = tokenizer_folder(find_model(options.model, options.adapter));
  Job job{.options = options, .tokenizer = {}, .stop = {}, .prompts = {}};
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
  job.stop = stop_tokens_of(folder, job.tokenizer.get());
  add_stop_tokens(job.stop, options.stop, job.tokenizer.get());
  return job;
}

/// Settings that need less memory, as the advice of an error.
std::vector<std::string> less_work(const Job& job) {
  std::vector<std::string> ways;
  if (job.prompts.size() > 1 && job.options.batch > 1) ways.emplace_back("a smaller --batch");
  ways.emplace_back("fewer --tokens");
  return ways;
}

/// The texts of a job. They go out in their order: the first that is not complete as it grows, those
/// after it wait.
class Output {
 public:
  Output(const Job& job, std::function<void(std::string_view)> write)
      : write_(std::move(write)), texts_(job.prompts.size()) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const Prompt& prompt = job.prompts[i];
      texts_[i].stream.emplace(*job.tokenizer, prompt.ids);
      if (job.options.chat) continue;
      texts_[i].text = prompt.text.empty() ? job.tokenizer->decode(prompt.ids) : prompt.text;
    }
  }

  void push(std::size_t i, std::int32_t token) {
    texts_[i].text += texts_[i].stream->push(token);
    flush();
  }
  void finish(std::size_t i) {
    texts_[i].text += texts_[i].stream->finish();
    texts_[i].complete = true;
    flush();
  }
  const std::string& text(std::size_t i) const { return texts_[i].text; }

 private:
  struct Text {
    std::optional<TextStream> stream;
    std::string text;
    std::size_t written = 0;  // bytes of it
    bool complete = false;
  };

  void flush() {
    if (!write_) return;
    for (; first_ < texts_.size(); ++first_) {
      Text& one = texts_[first_];
      if (one.written < one.text.size()) write_(std::string_view(one.text).substr(one.written));
      one.written = one.text.size();
      if (!one.complete) return;
      if (first_ + 1 < texts_.size()) write_("\n");
    }
  }

  std::function<void(std::string_view)> write_;
  std::vector<Text> texts_;
  std::size_t first_ = 0;  // that is not complete
};

std::vector<std::vector<std::int32_t>> ids_of(const std::vector<Prompt>& prompts) {
  std::vector<std::vector<std::int32_t>> ids;
  for (const Prompt& prompt : prompts) ids.push_back(prompt.ids);
  return ids;
}

}  // namespace

std::vector<Generated> generate(const GenerateOptions& options,
                                const std::function<void(std::string_view)>& write) {
  const Job job = prepare_job(options, write != nullptr);
  std::vector<Generated> results;
  const InferenceOptions inference = {.model = options.model,
                                      .adapter = options.adapter,
                                      .device = options.device,
                                      .threads = options.threads,
                                      .ranks = options.ranks,
                                      .dtype = options.dtype};
  run_model(inference, [&](LanguageModel& model) {
    const std::int64_t vocabulary = model.shape().vocab_size;
    check(!job.tokenizer || job.tokenizer->vocab_size() <= vocabulary,
          "{}: vocabulary mismatch: the tokenizer has {} tokens, the model {}",
          find_model(options.model, options.adapter).own().string(),
          job.tokenizer ? job.tokenizer->vocab_size() : 0, vocabulary);
    const bool first_rank = context().rank() == 0;
    std::optional<Output> output;
    if (job.tokenizer && first_rank) output.emplace(job, write);
    ContinueCalls calls;
    if (output) {
      calls.token = [&](std::size_t i, std::int32_t token) {
        output->push(i, token);
        return false;
      };
      calls.finished = [&](std::size_t i) { output->finish(i); };
    }
    with_inference_advice(inference, less_work(job), [&] {
      std::vector<Generated> all =
          continue_prompts(model, ids_of(job.prompts),
                           {.sampling = options.sampling,
                            .tokens = options.tokens,
                            .seed = options.seed,
                            .batch = options.batch,
                            .stop = job.stop,
                            .choices = job.tokenizer ? job.tokenizer->vocab_size() : 0},
                           calls);
      for (std::size_t i = 0; output && i < all.size(); ++i) all[i].text = output->text(i);
      if (first_rank) results = std::move(all);
    });
  });
  return results;
}

std::string to_json(const Generated& generated, bool all) {
  std::string text = fmt::format("{{\"ids\": [{}]", fmt::join(generated.ids, ", "));
  if (all) {
    text +=
        fmt::format(", \"log_probabilities\": [{}]", fmt::join(generated.log_probabilities, ", "));
  }
  if (generated.text) {
    const auto handler = nlohmann::json::error_handler_t::replace;
    text += ", \"text\": " + nlohmann::json(*generated.text).dump(-1, ' ', false, handler);
  }
  return text + "}";
}

}  // namespace tessera
