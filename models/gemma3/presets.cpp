#include "models/gemma3/config.h"

namespace tessera {
namespace {

/// Gemma Team 2025, "Gemma 3 Technical Report", tables 1 and 2, and the models' config.json.
Gemma3Config gemma3(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                    std::int64_t width, std::int64_t mlp_width) {
  return {.layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .width = width,
          .mlp_width = mlp_width};
}

/// From 4B on the context has 128 Ki tokens, and global layers have slower waves. The vocabulary has 64 rows
/// more, for images.
Gemma3Config with_long_context(Gemma3Config config) {
  config.vocab_size = 262208;
  config.context = 131072;
  config.window = 1024;
  config.rope.scaling = LinearScaling{.factor = 8.0};
  return config;
}

Gemma3Config gemma3_27b() {
  Gemma3Config config = with_long_context(gemma3(62, 32, 16, 5376, 21504));
  config.head_size = 128;
  config.query_scalar = config.width / config.heads;
  return config;
}

/// For a laptop. Every second layer is global, so that a few layers have both kinds.
Gemma3Config mini() {
  Gemma3Config config = gemma3(4, 4, 2, 256, 688);
  config.vocab_size = 32000;
  config.context = 256;
  config.head_size = 32;
  config.query_scalar = 32;
  config.window = 64;
  config.global_every = 2;
  return config;
}

}  // namespace

const Presets<Gemma3Config>& gemma3_presets() {
  static const Presets<Gemma3Config> presets = {
      {"gemma3-270m", gemma3(18, 4, 1, 640, 2048)},
      {"gemma3-1b", gemma3(26, 4, 1, 1152, 6912)},
      {"gemma3-4b", with_long_context(gemma3(34, 8, 4, 2560, 10240))},
      {"gemma3-12b", with_long_context(gemma3(48, 16, 8, 3840, 15360))},
      {"gemma3-27b", gemma3_27b()},
      {"gemma3-mini", mini()},
  };
  return presets;
}

}  // namespace tessera
