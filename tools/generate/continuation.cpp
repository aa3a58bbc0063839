#include "tools/generate/continuation.h"

#include <algorithm>
#include <optional>
#include <span>

#include "tools/generate/growing_text.h"
#include "tools/generate/prompts.h"

namespace tessera {
namespace {

Generated result_of(const GrowingText& text) {
  Generated result = {.ids = text.ids(), .log_probabilities = {}};
  for (const TokenScore& score : text.scores()) {
    result.log_probabilities.push_back(score.log_probability);
  }
  return result;
}

/// Continues the prompts from number `first` on at the same time, and adds the results.
void continue_together(LanguageModel& model, std::span<const std::vector<std::int32_t>> prompts,
                       std::size_t first, const ContinueOptions& options,
                       const ContinueCalls& calls, std::vector<Generated>& results) {
  const GrowthOptions growth = {.sampling = options.sampling,
                                .tokens = options.tokens,
                                .seed = options.seed,
                                .stop = options.stop,
                                .choices = options.choices};
  std::vector<GrowingText> texts;
  for (const auto& prompt : prompts) texts.emplace_back(growth, model.shape(), prompt);
  const auto finish = [&](std::size_t i) {
    if (calls.finished) calls.finished(first + i);
  };
  std::vector<std::size_t> growing;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i].finished() ? finish(i) : growing.push_back(i);
  }
  while (!growing.empty()) {
    std::vector<NewTokens> sequences;
    for (const std::size_t i : growing) sequences.push_back(texts[i].read());
    const Tensor logits = model.next_logits(sequences);
    std::int64_t row = 0;
    for (const std::size_t i : growing) {
      const auto token = texts[i].add(logits.slice(row, row + 1));
      if (token && calls.token && calls.token(first + i, *token)) texts[i].end();
      if (texts[i].finished()) finish(i);
      ++row;
    }
    std::erase_if(growing, [&](std::size_t i) { return texts[i].finished(); });
  }
  for (const GrowingText& text : texts) results.push_back(result_of(text));
}

}  // namespace

std::vector<Generated> continue_prompts(LanguageModel& model,
                                        const std::vector<std::vector<std::int32_t>>& prompts,
                                        const ContinueOptions& options,
                                        const ContinueCalls& calls) {
  for (const auto& prompt : prompts) check_ids(prompt, model.shape().vocab_size);
  const auto at_a_time = static_cast<std::size_t>(options.batch);
  std::vector<Generated> results;
  for (std::size_t first = 0; first < prompts.size(); first += at_a_time) {
    const std::size_t count = std::min(at_a_time, prompts.size() - first);
    continue_together(model, std::span(prompts).subspan(first, count), first, options, calls,
                      results);
  }
  return results;
}

}  // namespace tessera
