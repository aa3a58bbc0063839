// Cuts: the sizes of tensor, context, pipeline and expert parallelism next to a strategy, and the least time of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/unit.h"
#include "models/transformer_shape.h"
#include "sharding/plan/machine_rates.h"
#include "sharding/plan/pipeline_schedule.h"
#include "tools/config/config.h"

namespace tessera {

struct Cuts {
  int tensor = 1, context = 1, pipeline = 1, expert = 1;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  /// Stages of each rank: several are for the schedule interleaved.
  int chunks = 1;

  int ranks_of_a_copy() const { return tensor * context * pipeline; }
  bool any() const { return kind() != 0; }
  /// A bit for each cut that has several ranks.
  unsigned kind() const;
  /// Sets the keys of all cuts.
  void apply(ShardingConfig& sharding) const;
  /// The keys of the cuts that there are: "sharding.tensor_parallel=2".
  std::vector<std::string> keys() const;
  bool operator==(const Cuts&) const = default;
};

/// A lower bound of a step's time on GPUs: computation without messages. It holds for every strategy.
class LeastTime {
 public:
  /// Micro-batches of `rows` rows of `length` tokens, before context ranks share them out. `stages` is the rule of
  /// cut_stages().
  LeastTime(const Units& units, const TransformerShape& shape, std::int64_t rows,
            std::int64_t length, std::string stages);

  /// Seconds of `micro_batches` micro-batches at these rates. A rank of a pipeline computes all passes of its
  /// stages. It also waits until the first micro-batch reaches it and, behind its last pass, for the ranks
  /// before it: in zero_bubble gradients of weights may fill that time. `recomputes`: backward computes every
  /// block again. Raises Error as cut_stages() does.
  double seconds(const Cuts& cuts, std::int64_t micro_batches, bool recomputes,
                 const ComputeRates& rates) const;

 private:
  /// Seconds of one micro-batch in a part of the model, times the rate of operations.
  struct Part {
    double forward = 0.0, backward = 0.0;
  };

  const Units& units_;
  const std::string stages_;
  const int experts_per_token_;
  std::vector<Part> parts_;
};

}  // namespace tessera
