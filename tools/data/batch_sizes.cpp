#include "tools/data/batch_sizes.h"

#include <algorithm>
#include <utility>

namespace tessera {

BatchSizes::BatchSizes(std::int64_t rows, std::vector<BatchStage> ramp)
    : rows_(rows), ramp_(std::move(ramp)) {}

std::int64_t BatchSizes::rows(std::int64_t batch) const {
  for (const BatchStage& stage : ramp_) {
    if (batch < stage.batches) return stage.rows;
    batch -= stage.batches;
  }
  return rows_;
}

std::int64_t BatchSizes::first_row(std::int64_t batch) const {
  std::int64_t first = 0;
  for (const BatchStage& stage : ramp_) {
    const std::int64_t count = std::min(batch, stage.batches);
    first += count * stage.rows;
    batch -= count;
  }
  return first + batch * rows_;
}

}  // namespace tessera
