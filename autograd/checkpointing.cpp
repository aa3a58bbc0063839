#include "autograd/checkpointing.h"

#include <charconv>

#include "runtime/check.h"

namespace tessera {
namespace {

/// The number in "<word> <number>", if text is that and the number at least `least`.
std::optional<std::int64_t> number_after(std::string_view word, std::string_view text,
                                         std::int64_t least) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::optional<CheckpointingPolicy> parse_checkpointing(std::string_view text) {
  if (text == "none") return CheckpointingPolicy{};
  if (text == "full") return CheckpointingPolicy{.every = 1};
  if (const auto every = number_after("every ", text, 1)) {
    return CheckpointingPolicy{.every = *every};
  }
  if (const auto first = number_after("from ", text, 0)) {
    return CheckpointingPolicy{.first = *first, .every = 1};
  }
  return std::nullopt;
}

std::string to_string(const CheckpointingPolicy& policy) {
  if (policy.every == 0) return "none";
  if (policy.first > 0) return fmt::format("from {}", policy.first);
  return policy.every == 1 ? "full" : fmt::format("every {}", policy.every);
}

void set_checkpointing(const Units& units, const CheckpointingPolicy& policy) {
  const std::int64_t ends = units.front()->at_both_ends() ? 1 : 2;
  const std::int64_t blocks = static_cast<std::int64_t>(units.size()) - ends;
  check(policy.first == 0 || policy.first < blocks,
        "activation checkpointing '{}': the model's blocks are 0 to {}", to_string(policy),
        blocks - 1);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(units.size()); ++i) {
    const bool is_block = 1 <= i && i <= blocks;
    units[static_cast<std::size_t>(i)]->set_checkpointing(is_block && policy.recomputes(i - 1));
  }
}

}  // namespace tessera
