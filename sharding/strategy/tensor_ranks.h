// TensorRanks: the collectives among the ranks along the mesh's axis "tensor".
//
// They run on the compute stream, because the rows are the next thing that computation needs. They have
// a communicator of their own, since gathers and reductions use the communication stream meanwhile.
#pragma once

#include <map>
#include <memory>

#include "autograd/tensor_axis.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/held_part.h"

namespace tessera {

class TensorRanks final : public TensorAxis {
 public:
  /// `group`: the tensor-parallel ranks, only for this use; null for one rank. It must outlive this
  /// object.
  TensorRanks(Communicator* group, int sum_parts)
      : TensorAxis(group == nullptr ? 1 : group->size(), group == nullptr ? 0 : group->rank(),
                   sum_parts),
        group_(group) {}

  void all_gather(const Tensor& whole) override;
  void reduce_scatter(const Tensor& part, const Tensor& whole) override;
  void all_reduce(const Tensor& x) override;
  TensorAxis& sharers(std::int64_t count) override { return *sharers_.at(count); }

  /// `group`: this rank and its sharers, only for this use, as many as it has ranks.
  void add_sharers(Communicator& group) {
    sharers_[group.size()] = std::make_unique<TensorRanks>(&group, group.size());
  }

 private:
  Communicator* const group_;
  std::map<std::int64_t, std::unique_ptr<TensorRanks>> sharers_;  // by their number
};

/// The whole of a parameter, or of its experts on this rank, from the parts that the ranks of `group`
/// hold, on the communication stream. A collective.
Tensor gather_tensor_parts(const Parameter& parameter, const CutSizes& sizes, const Tensor& part,
                           Communicator& group);

}  // namespace tessera
