#include "tools/config/synonyms.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tessera {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array kKeys = {
    Pair{"n_layer", "model.layers"},
    Pair{"n_layers", "model.layers"},
    Pair{"num_layers", "model.layers"},
    Pair{"num_hidden_layers", "model.layers"},
    Pair{"n_head", "model.heads"},
    Pair{"n_heads", "model.heads"},
    Pair{"num_heads", "model.heads"},
    Pair{"num_attention_heads", "model.heads"},
    Pair{"n_embd", "model.width"},
    Pair{"dim", "model.width"},
    Pair{"d_model", "model.width"},
    Pair{"hidden_size", "model.width"},
    Pair{"n_positions", "model.context"},
    Pair{"n_ctx", "model.context"},
    Pair{"max_position_embeddings", "model.context"},
    Pair{"block_size", "data.sequence_length' and 'model.context"},
    Pair{"seq_len", "data.sequence_length"},
    Pair{"max_seq_len", "data.sequence_length"},
    Pair{"dataset", "data.train"},
    Pair{"gradient_accumulation_steps", "data.accumulation_steps"},
    Pair{"lr", "optimizer.learning_rate"},
    Pair{"min_lr", "optimizer.minimum_learning_rate_ratio"},
    Pair{"lr_scheduler_type", "optimizer.schedule"},
    Pair{"warmup_iters", "optimizer.warmup_steps"},
    Pair{"wd", "optimizer.weight_decay"},
    Pair{"grad_clip", "optimizer.clip_norm"},
    Pair{"max_grad_norm", "optimizer.clip_norm"},
    Pair{"max_norm", "optimizer.clip_norm"},
    Pair{"dtype", "runtime.compute_dtype"},
    Pair{"max_iters", "train.steps"},
    Pair{"max_steps", "train.steps"},
    Pair{"eval_interval", "train.eval_every"},
    Pair{"eval_steps", "train.eval_every"},
    Pair{"eval_iters", "train.eval_batches"},
    Pair{"log_interval", "train.log_every"},
    Pair{"logging_steps", "train.log_every"},
    Pair{"out_dir", "train.dir"},
    Pair{"output_dir", "train.dir"},
    Pair{"trace", "train.profile"},
    Pair{"gradient_checkpointing", "sharding.activation_checkpointing"},
};

constexpr std::array kValues = {
    Pair{"bfloat16", "bf16"}, Pair{"float16", "f16"},
    Pair{"fp16", "f16"},      Pair{"half", "f16"},
    Pair{"float32", "f32"},   Pair{"fp32", "f32"},
    Pair{"float", "f32"},     Pair{"gpu", "cuda"},
    Pair{"adam", "adamw"},    Pair{"yes", "true"},
    Pair{"on", "true"},       Pair{"no", "false"},
    Pair{"off", "false"},     Pair{"wsd", "warmup_stable_decay"},
};

template <std::size_t N>
std::optional<std::string> look_up(const std::array<Pair, N>& pairs, std::string_view name) {
  for (const auto& [from, to] : pairs) {
    if (from == name) return std::string(to);
  }
  return std::nullopt;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// "1000" for "1e3": the digits of a whole number in scientific notation.
std::optional<std::string> digits_of(std::string_view text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() &&
                     number == std::floor(number) && std::abs(number) < 0x1p53;
  if (!whole) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(number));
}

}  // namespace

std::optional<std::string> key_synonym(std::string_view name) {
  const std::string_view leaf = name.substr(name.rfind('.') + 1);  // npos + 1 == 0
  const std::optional<std::string> key = look_up(kKeys, leaf);
  if (!key) return std::nullopt;
  return "it is called '" + *key + "' here";
}

std::optional<std::string> value_synonym(std::string_view value) {
  const std::string small = lower(value);
  if (const auto found = look_up(kValues, small)) return found;
  if (small != value) return small;
  return digits_of(value);
}

}  // namespace tessera
