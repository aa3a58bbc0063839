// ExpertAxis: the exchange of rows among the ranks along the mesh's axis "expert".
//
// It runs on a stream of its own, so that rows travel while others are computed, and gathers and
// reductions use the communication stream. So it has a communicator of its own, too.
#pragma once

#include <memory>

#include "autograd/expert_exchange.h"
#include "autograd/parameter.h"
#include "sharding/comm/communicator.h"

namespace tessera {

class ExpertAxis final : public ExpertExchange {
 public:
  /// `group`: the ranks that share out experts, only for this use.
  ExpertAxis(std::shared_ptr<Communicator> group, const ExpertChoices& choices);
  /// Calls that are still queued keep their communicator.
  ~ExpertAxis() override;
  ExpertAxis(const ExpertAxis&) = delete;
  ExpertAxis& operator=(const ExpertAxis&) = delete;

  int ranks() const override { return group_->size(); }
  int rank() const override { return group_->rank(); }
  /// A step begins: the next calls come behind the last calls of the communication stream, which compare
  /// the calls of the step before.
  void start();
  std::vector<std::int32_t> swap(const Tensor& sent) override;
  Event move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
             const Tensor& sent, const std::vector<std::int64_t>& sent_rows) override;
  void wait(const Event& arrival) override;
  /// By this rank, since the start.
  std::int64_t bytes_sent() const { return group_->own_bytes_sent(); }

 private:
  const std::shared_ptr<Communicator> group_;
  const Stream stream_;
};

/// The whole of a parameter, from the parts that the ranks of `group` hold, on the communication
/// stream. A collective.
Tensor gather_experts(const Parameter& parameter, const Tensor& part, Communicator& group);

}  // namespace tessera
