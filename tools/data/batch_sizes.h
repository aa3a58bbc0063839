// BatchSizes: the rows of every batch of a run, which may grow (train.batch_ramp).
//
// Batches are counted from 0. A batch has the rows of the run that follow the batches before it, so none is left
// out and the data does not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// So many batches of so many rows.
struct BatchStage {
  std::int64_t batches = 1, rows = 1;
  bool operator==(const BatchStage&) const = default;
};

class BatchSizes {
 public:
  /// `rows`: of every batch behind the stages of the ramp.
  BatchSizes(std::int64_t rows, std::vector<BatchStage> ramp = {});

  std::int64_t rows(std::int64_t batch) const;
  /// The number of the batch's first row in the run: the rows of all batches before it.
  std::int64_t first_row(std::int64_t batch) const;

 private:
  std::int64_t rows_;
  std::vector<BatchStage> ramp_;
};

}  // namespace tessera
