// ContextExchange: the collectives of ranks that share out the tokens of rows, the mesh's axis "context".
//
// Keys and values have a stream, because those of a head travel while attention computes another one. Their
// gradients are summed on the compute stream, since the next product needs them. Each has a communicator, as gathers
// and reductions of parameters use the communication stream meanwhile.
#pragma once

#include <memory>

#include "autograd/context_axis.h"
#include "runtime/context.h"
#include "sharding/comm/communicator.h"

namespace tessera {

class ContextExchange final : public ContextAxis {
 public:
  /// The cut's ranks, twice, only for these uses. `gradients` must outlive this object. Null for one rank.
  struct Groups {
    std::shared_ptr<Communicator> keys;
    Communicator* gradients = nullptr;
  };
  ContextExchange(const TokenCut& cut, bool by_heads, const Groups& groups)
      : ContextAxis(cut, by_heads),
        groups_(groups),
        keys_(context().side_stream("keys and values")) {}
  /// A gather that is still queued keeps its communicator.
  ~ContextExchange() override;

  Event start_gather(const std::vector<Tensor>& wholes) const override;
  void reduce_scatter(const Tensor& part, const Tensor& whole) const override;

 private:
  const Groups groups_;
  Stream keys_;  // the stream of their messages
};

}  // namespace tessera
