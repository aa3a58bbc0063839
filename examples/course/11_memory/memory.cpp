// The bytes that a rank holds under a strategy, by formulas.
#include "examples/course/11_memory/memory.h"

#include <algorithm>

namespace tessera::course {
namespace {

/// Elements of the slots: the blocks use two in turn, the embedding and the head share one.
std::int64_t slot_elements(const Model& model) {
  return 2 * model.block + std::max(model.embedding, model.head);
}

}  // namespace

Held held_bytes(Strategy strategy, const Model& model, int ranks, bool bf16) {
  const std::int64_t all = model.elements(), part = all / ranks;
  const std::int64_t value_bytes = bf16 ? 2 : 4;
  Held held;
  // Masters; and where all values stay on the rank, their copies in bf16.
  held.parameters = 4 * (strategy == Strategy::fsdp ? part : all);
  if (bf16 && strategy != Strategy::fsdp) {
    held.parameters = 4 * (strategy == Strategy::ddp ? all : part) + 2 * all;
  }
  const bool cuts_gradients = strategy == Strategy::zero2 || strategy == Strategy::fsdp;
  held.gradients = 4 * (cuts_gradients ? part : all);
  held.moments = 8 * (strategy == Strategy::ddp ? all : part);
  if (cuts_gradients) held.slots += 4 * slot_elements(model);
  if (strategy == Strategy::fsdp) held.slots += value_bytes * slot_elements(model);
  return held;
}

}  // namespace tessera::course
