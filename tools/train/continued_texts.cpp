#include "tools/train/continued_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/hugging_face.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/config/parse.h"
#include "tools/generate/prompts.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The texts or token ids of the section `sample`.
std::vector<Prompt> prompts_of(const Config& config) {
  const SampleConfig& sample = config.sample;
  std::vector<Prompt> prompts = {{.text = sample.prompt.empty() ? "\n" : sample.prompt}};
  if (sample.prompts.empty()) return prompts;
  check_key(config, "sample.prompts", [&] {
    check(sample.prompt.empty(), "sample.prompt is set too; set one of them");
    prompts = read_prompts(sample.prompts);
  });
  return prompts;
}

}  // namespace

ContinuedTexts::ContinuedTexts(const ResolvedConfig& run, const Tokenizer* tokenizer,
                               const StopTokens& stop)
    : tokenizer_(tokenizer) {
  const Config& config = run.config;
  check_key(config, "train.sample_every", [&] {
    check(tokenizer != nullptr,
          "samples need a tokenizer, and there is no tokenizer.json next to {}",
          config.data.train.first().string());
  });
  const char* const key = config.sample.prompts.empty() ? "sample.prompt" : "sample.prompts";
  for (const Prompt& prompt : prompts_of(config)) {
    check_key(config, key, [&] {
      ids_.push_back(prompt.ids.empty()
                         ? tokenizer->with_special_tokens(tokenizer->encode(prompt.text))
                         : prompt.ids);
      check_ids(ids_.back(), tokenizer->vocab_size());
    });
    prompts_.push_back(prompt.ids.empty() ? prompt.text
                                          : repaired_utf8(tokenizer->decode(prompt.ids)));
  }
  options_ = {.sampling = {.temperature = config.sample.temperature,
                           .top_k = config.sample.top_k,
                           .top_p = config.sample.top_p},
              .tokens = config.sample.tokens,
              .seed = static_cast<std::uint64_t>(config.sample.seed),
              .stop = stop,
              .choices = tokenizer->vocab_size()};
}

std::vector<ContinuedText> ContinuedTexts::of(LanguageModel& model) const {
  std::vector<ContinuedText> samples;
  const std::vector<Generated> all = continue_prompts(model, ids_, options_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::span<const std::int32_t> fresh = std::span(all[i].ids).subspan(ids_[i].size());
    if (!fresh.empty() && options_.stop.contains(fresh.back())) {
      fresh = fresh.first(fresh.size() - 1);
    }
    samples.push_back({prompts_[i], prompts_[i] + repaired_utf8(tokenizer_->decode(fresh))});
  }
  return samples;
}

std::string short_form(const ContinuedText& sample) {
  constexpr std::size_t kMost = 55;  // bytes
  std::string line = sample.text;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  if (line.size() > kMost) {
    std::size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
    line = line.substr(0, end) + "...";
  }
  return excerpt(line);
}

std::string long_form(const ContinuedText& sample) {
  std::string text = "    ";
  for (const char c : sample.text) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    if (c == '\n') {
      text += "\n    ";
    } else {
      text += is_control && c != '\t' ? '?' : c;
    }
  }
  return text;
}

}  // namespace tessera
