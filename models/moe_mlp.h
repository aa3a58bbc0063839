// MoeMlp: a feed-forward layer that is a mixture of experts.
//
//   y = sum over a token's experts of expert_e(x), weighed by the router          (Qwen3-MoE)
//     + shared_expert(x)                                                          (Llama 4)
//
// The experts' weights are stacked: one parameter holds the matrices of all experts. docs/kernels/moe.md
// has the operations.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/gated_mlp.h"
#include "models/routers.h"

namespace tessera {

struct MoeMlpOptions {
  std::int64_t width = 0;
  std::int64_t experts = 0;
  /// Channels inside an expert.
  std::int64_t expert_width = 0;
  /// Channels inside the expert that every token takes; 0: no such expert.
  std::int64_t shared_width = 0;
  /// "gate" in Qwen3-MoE, "router" in Llama 4.
  std::string router_name = "gate";
  /// The layout of the experts' matrices, and where a token's weight comes in.
  ExpertOptions experts_as;
  Initializer initializer;
};

/// Parameters are `<name>.<router_name>.weight` [E, width], `<name>.experts.gate_up_proj`,
/// `<name>.experts.down_proj` (shapes in autograd/experts.h), and those of `<name>.shared_expert`.
class MoeMlp final : public Module {
 public:
  /// `routers` gets a layer more.
  MoeMlp(const std::string& name, const MoeMlpOptions& options, std::shared_ptr<Routers> routers);

  /// [..., width] to [..., width]; plus `residual` if it is defined.
  Variable operator()(const Variable& x, bool training, const Variable& residual = {}) const;
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

 private:
  ExpertOptions experts_as_;
  std::shared_ptr<Routers> routers_;
  std::int64_t layer_;
  Linear router_;
  Parameter gate_up_proj_, down_proj_;
  std::optional<GatedMlp> shared_expert_;
};

}  // namespace tessera
