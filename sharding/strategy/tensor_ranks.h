// TensorRanks: the collectives among the ranks along the mesh's axis "tensor".
//
// Rows that are the next thing that computation needs travel on the compute stream. Those that travel while
// others are multiplied have a stream. Each has a communicator, since gathers and reductions of parameters
// use the communication stream meanwhile.
#pragma once

#include <map>
#include <memory>

#include "autograd/tensor_axis.h"
#include "runtime/context.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/held_part.h"

namespace tessera {

class TensorRanks final : public TensorAxis {
 public:
  /// The tensor-parallel ranks, twice, only for these uses. `sums` must outlive this object; null for one rank.
  /// Without `rows` they travel together.
  struct Groups {
    Communicator* sums = nullptr;
    std::shared_ptr<Communicator> rows = nullptr;
  };
  TensorRanks(const Groups& groups, int sum_parts);
  /// A message that is still queued keeps its communicator.
  ~TensorRanks() override;

  /// A step begins: messages from now on come behind the last calls of the communication stream, which compare
  /// the calls of the step before.
  void start();
  Event shift(const Tensor& received, const Tensor& sent, int distance) override;
  void wait(const Event& arrival) override;
  void all_gather(const Tensor& whole) override;
  void reduce_scatter(const Tensor& part, const Tensor& whole) override;
  void all_reduce(const Tensor& x) override;
  TensorAxis& sharers(std::int64_t count) override { return *sharers_.at(count); }

  /// `group`: this rank and its sharers, only for this use, as many as it has ranks.
  void add_sharers(Communicator& group) {
    sharers_[group.size()] = std::make_unique<TensorRanks>(Groups{.sums = &group}, group.size());
  }

 private:
  const Groups groups_;
  const Stream rows_;                                             // the stream of their messages
  std::map<std::int64_t, std::unique_ptr<TensorRanks>> sharers_;  // by their number
};

/// The whole of a parameter, or of its experts on this rank, from the parts that the ranks of `group`
/// hold, on the communication stream. A collective.
Tensor gather_tensor_parts(const Parameter& parameter, const CutSizes& sizes, const Tensor& part,
                           Communicator& group);

}  // namespace tessera
