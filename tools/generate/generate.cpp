#include "tools/generate/generate.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/strategy/strategy.h"
#include "tools/generate/text_stream.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The tokens so far and the cache over all but the newest of them.
class Continuation {
 public:
  Continuation(LanguageModel& model, std::vector<std::int32_t> prompt)
      : model_(model), tokens_(std::move(prompt)), cache_(model.shape()) {}

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  void append(std::int32_t token) { tokens_.push_back(token); }

  /// Logits of the token that comes next.
  std::vector<float> next_logits() {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    if (cache_.length + (count - seen_) > model_.shape().context) restart();
    const Tensor fresh = Tensor::from(
        std::span<const std::int32_t>(tokens_).subspan(static_cast<std::size_t>(seen_)),
        {count - seen_});
    seen_ = count;
    return model_.next_logits(fresh, cache_).to_vector<float>();
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

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& write) {
  check_sampling(options.sampling);
  check(options.tokens >= 0, "--tokens is {}; expected at least 0", options.tokens);
  const std::optional<Device> device = parse_device(options.device);
  check(device.has_value(), "--device: expected auto, cpu, cuda or cuda:N, got '{}'",
        options.device);
  const fs::path folder = model_folder(options.model);
  const auto tokenizer = Tokenizer::load(folder);
  RankContext rank({.device = *device, .threads = options.threads, .seed = options.seed});
  const ContextGuard guard(rank);
  const auto model = make_pretrained(folder);
  check(tokenizer->vocab_size() <= model->shape().vocab_size,
        "{}: vocabulary mismatch: the tokenizer has {} tokens, the model {}", folder.string(),
        tokenizer->vocab_size(), model->shape().vocab_size);
  const auto strategy = make_single_strategy(model->units(), options.seed);
  strategy->write_masters([&] { load_parameters(folder, strategy->shards()); });

  std::vector<std::int32_t> prompt =
      tokenizer->with_special_tokens(tokenizer->encode(options.prompt));
  check(!prompt.empty(), "the prompt is empty: give at least one character to continue");
  write(options.prompt);
  TextStream stream(*tokenizer, prompt);
  Continuation text(*model, std::move(prompt));
  const RandomStream random(options.seed, "sampling");
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    std::vector<float> logits = text.next_logits();
    logits.resize(static_cast<std::size_t>(tokenizer->vocab_size()));  // ids beyond have no text
    const auto token = static_cast<std::int32_t>(
        sample(logits, options.sampling, random, static_cast<std::uint64_t>(i)));
    text.append(token);
    write(stream.push(token));
  }
  write(stream.finish());
}

}  // namespace tessera
