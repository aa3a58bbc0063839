#include "models/moe_mlp.h"

#include <utility>

namespace tessera {
namespace {

/// The matrices of all experts. Ranks may share out the channels inside each expert: the outputs of
/// gate_up, which has gate and up, and the inputs of down.
Parameter stacked(const std::string& name, const MoeMlpOptions& options, std::int64_t inputs,
                  std::int64_t outputs, const LayerCut& cut) {
  const bool out_in = options.experts_as.layout == WeightLayout::out_in;
  const Shape shape =
      out_in ? Shape{options.experts, outputs, inputs} : Shape{options.experts, inputs, outputs};
  const Parameter parameter(name, shape, options.initializer);
  parameter.set_stacked();
  const bool by_rows = (cut.divided == Divided::outputs) == out_in;
  parameter.set_cut({cut.divided, by_rows ? 1 : 2, cut.groups, cut.pieces, cut.piece});
  return parameter;
}

}  // namespace

MoeMlp::MoeMlp(const std::string& name, const MoeMlpOptions& options,
               std::shared_ptr<Routers> routers)
    : experts_as_(options.experts_as),
      routers_(std::move(routers)),
      layer_(routers_->add_layer(name + "." + options.router_name)),
      router_(name + "." + options.router_name, options.width, options.experts,
              /*with_bias=*/false, WeightLayout::out_in, options.initializer),
      gate_up_proj_(stacked(name + ".experts.gate_up_proj", options, options.width,
                            2 * options.expert_width,
                            by_outputs(options.expert_width, "channel", /*groups=*/2))),
      down_proj_(stacked(name + ".experts.down_proj", options, options.expert_width, options.width,
                         by_inputs(options.expert_width))) {
  if (options.shared_width > 0) {
    shared_expert_.emplace(name + ".shared_expert", options.width, options.shared_width,
                           /*with_bias=*/false, options.initializer);
  }
}

Variable MoeMlp::operator()(const Variable& x, bool training, const Variable& residual) const {
  const Routing routing = routers_->route(layer_, router_(x), training);
  const Variable others = shared_expert_ ? (*shared_expert_)(x, residual) : residual;
  return experts(x, routing, gate_up_proj_, down_proj_, experts_as_, others);
}

void MoeMlp::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  router_.visit_parameters(visit);
  visit(gate_up_proj_);
  visit(down_proj_);
  if (shared_expert_) shared_expert_->visit_parameters(visit);
}

}  // namespace tessera
