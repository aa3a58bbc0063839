#include "optim/decay_rule.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("weight decay acts on matrices and embeddings, not on norms and biases") {
  REQUIRE(decays("transformer.h.0.attn.c_attn.weight", {768, 2304}));
  REQUIRE(decays("transformer.wte.weight", {50257, 768}));
  REQUIRE(decays("model.layers.0.mlp.experts.gate_up_proj", {8, 64, 128}));
  REQUIRE_FALSE(decays("transformer.h.0.ln_1.weight", {768}));
  REQUIRE_FALSE(decays("transformer.h.0.attn.c_attn.bias", {2304}));
  REQUIRE_FALSE(decays("model.layers.0.mlp.experts.gate_up_proj_bias", {8, 128}));
  REQUIRE_FALSE(decays("temperature", {}));
}

}  // namespace tessera
