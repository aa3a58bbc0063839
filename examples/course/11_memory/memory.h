// The bytes that a rank holds under a strategy, by formulas.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::course {

enum class Strategy { ddp, zero1, zero2, fsdp };

/// Elements of a model's units. All blocks have the same number, and the ranks divide every number.
struct Model {
  std::int64_t embedding = 0, block = 0, head = 0;
  int blocks = 0;

  std::int64_t elements() const { return embedding + blocks * block + head; }
};

/// Bytes of one rank.
struct Held {
  std::int64_t parameters = 0, gradients = 0, moments = 0, slots = 0;
};

/// `bf16`: units compute in bf16. Masters, gradients and both of AdamW's moments are f32.
Held held_bytes(Strategy strategy, const Model& model, int ranks, bool bf16);

}  // namespace tessera::course
