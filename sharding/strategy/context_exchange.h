// ContextExchange: the collectives of ranks that share out the tokens of rows, the mesh's axis "context".
//
// They run on the compute stream, because attention needs their results next. They have a communicator of
// their own, since gathers and reductions of parameters use the communication stream meanwhile.
#pragma once

#include "autograd/context_axis.h"
#include "sharding/comm/communicator.h"

namespace tessera {

class ContextExchange final : public ContextAxis {
 public:
  /// `group`: the cut's ranks, only for this use. It must outlive this object; null for one rank.
  ContextExchange(const TokenCut& cut, Communicator* group) : ContextAxis(cut), group_(group) {}

  void all_gather(const std::vector<Tensor>& wholes) const override;
  void reduce_scatter(const Tensor& part, const Tensor& whole) const override;

 private:
  Communicator* const group_;
};

}  // namespace tessera
