#include "models/llama4/config.h"

namespace tessera {
namespace {

/// The published models' <|finetune_right_pad|>.
constexpr std::int64_t kPadding = 200018;

/// Meta 2025, Llama-4-Maverick-17B-128E's config.json: 128 experts in every second layer.
Llama4Config maverick() {
  return {.context = 1048576,
          .experts = 128,
          .experts_every = 2,
          .qk_norm = false,
          .rope = {.theta = 500'000.0},
          .padding_id = kPadding};
}

/// A model for a laptop: Maverick's layers, Scout's attention. A token's expert and the shared one
/// have together as many channels as a layer without experts.
Llama4Config mini() {
  return {.vocab_size = 32000,
          .context = 256,
          .layers = 4,
          .heads = 4,
          .kv_heads = 2,
          .head_size = 64,
          .width = 256,
          .mlp_width = 688,
          .experts = 8,
          .expert_width = 344,
          .experts_every = 2,
          .attention_chunk = 64,
          .floor_scale = 64,
          .rope = {.theta = 500'000.0},
          .tied = true};
}

}  // namespace

const Presets<Llama4Config>& llama4_presets() {
  static const Presets<Llama4Config> presets = {
      {"llama4-scout", {.padding_id = kPadding}},  // Meta 2025, Llama-4-Scout-17B-16E's config.json
      {"llama4-maverick", maverick()},
      {"llama4-mini", mini()},
  };
  return presets;
}

}  // namespace tessera
