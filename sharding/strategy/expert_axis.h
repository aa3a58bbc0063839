// ExpertAxis: the exchange of rows among the ranks along the mesh's axis "expert".
//
// It runs on the compute stream, because the rows are the next thing that computation needs. It has
// a communicator of its own, since gathers and reductions use the communication stream meanwhile.
#pragma once

#include "autograd/parameter.h"
#include "sharding/comm/communicator.h"

namespace tessera {

class ExpertAxis final : public ExpertExchange {
 public:
  /// `group`: the ranks that share out experts, only for this use. It must outlive this object.
  explicit ExpertAxis(Communicator& group) : group_(group) {}

  int ranks() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }
  std::vector<std::int32_t> swap(const Tensor& sent) override;
  void move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
            const Tensor& sent, const std::vector<std::int64_t>& sent_rows) override;

 private:
  Communicator& group_;
};

/// The whole of a parameter, from the parts that the ranks of `group` hold, on the communication
/// stream. A collective.
Tensor gather_experts(const Parameter& parameter, const Tensor& part, Communicator& group);

}  // namespace tessera
