#include "sharding/strategy/tied_ends.h"

#include "autograd/variable.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/windows.h"

namespace tessera {
namespace {

/// The ranks of a pair, in the order of the world's.
constexpr int kFirst = 0, kLast = 1;

/// Tensors of the shapes of the parameters, in one block of memory.
Tensors tensors_of(const std::vector<Parameter>& parameters, std::int64_t elements, DType dtype) {
  const Tensor memory = Tensor::zeros({elements}, dtype);
  Tensors tensors;
  std::int64_t offset = 0;
  for (const Parameter& parameter : parameters) {
    tensors.push_back(
        window_of(memory, Range{offset, parameter.numel()}).reshape(parameter.shape()));
    offset += PipelinePlan::tied_place(parameter);
  }
  return tensors;
}

std::vector<Parameter> trained(const Unit& unit) {
  std::vector<Parameter> parameters = unit.parameters();
  std::erase_if(parameters, [](const Parameter& parameter) { return !parameter.trainable(); });
  return parameters;
}

}  // namespace

TiedEnds::TiedEnds(const Plan& plan, Unit& unit, UnitHooks& hooks, Communicator& world)
    : plan_(plan),
      unit_(unit),
      hooks_(hooks),
      first_(plan.pipeline_rank(world.rank()) == 0),
      last_(plan.pipeline_rank(world.rank()) == plan.pipeline.shape.ranks - 1) {
  const auto color = [&](int rank) {
    const int place = plan.pipeline_rank(rank);
    const bool at_an_end = place == 0 || place == plan.pipeline.shape.ranks - 1;
    return 2 * plan.mesh.group_along(rank, {"pipeline"}) + (at_an_end ? 1 : 0);
  };
  weights_pair_ = world.split(color);
  gradients_pair_ = world.split(color);
  if (!first_ && !last_) return;
  weights_stream_ = context().side_stream("tied weights");
  gradients_stream_ = context().side_stream("tied gradients");
  const PipelinePlan& pipeline = plan.pipeline;
  if (first_) {
    const CategoryScope category(Category::communication);
    for (int slot = 0; slot < pipeline.tied_slots(); ++slot) {
      slots_.push_back({tensors_of(trained(unit), pipeline.tied_elements(true), DType::f32), {}});
    }
    return;
  }
  {
    const CategoryScope category(Category::parameters);
    weights_ = tensors_of(unit.parameters(), pipeline.tied_elements(false), pipeline.message_dtype);
  }
  const CategoryScope category(Category::gradients);
  gradients_ = tensors_of(trained(unit), pipeline.tied_elements(true), DType::f32);
  for (std::size_t i = 0; i < weights_.size(); ++i) unit.parameters()[i].open(weights_[i]);
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    trained(unit)[i].open_gradient(gradients_[i]);
  }
}

TiedEnds::~TiedEnds() {
  if (!first_ && !last_) return;
  weights_stream_.enqueue([pair = weights_pair_] {});
  gradients_stream_.enqueue([pair = gradients_pair_] {});
  if (first_) return;
  for (const Parameter& parameter : unit_.parameters()) {
    parameter.close();
    parameter.close_gradient();
  }
}

void TiedEnds::send_or_receive(Communicator& pair, const Tensors& tensors, int root,
                               const Stream& stream, std::optional<Event>& done) const {
  stream.wait(context().compute_stream().record());
  done = pair.broadcast(tensors, root, stream, "tied ends");
}

void TiedEnds::start(bool trains) {
  if (!first_ && !last_) return;
  for (const Stream& stream : {weights_stream_, gradients_stream_}) {
    stream.wait(communication_stream().record());
  }
  if (last_) {
    send_or_receive(*weights_pair_, weights_, kFirst, weights_stream_, weights_done_);
    return;
  }
  const NoGradient no_gradient;
  hooks_.before_forward(unit_);
  Tensors windows;
  for (const Parameter& parameter : unit_.parameters()) windows.push_back(parameter.data());
  send_or_receive(*weights_pair_, windows, kFirst, weights_stream_, weights_done_);
  // The bucket keeps its slot until the weights change, so the message can still be read there.
  hooks_.after_forward(unit_);
  received_ = consumed_ = 0;
  if (!trains) return;
  for (Slot& slot : slots_) receive_into(slot);
}

void TiedEnds::receive_into(Slot& slot) {
  if (slot.gradients.empty() || received_ == plan_.micro_batches) return;
  ++received_;
  send_or_receive(*gradients_pair_, slot.gradients, kLast, gradients_stream_, slot.received);
}

void TiedEnds::before_head(bool trains) {
  if (!last_) return;
  wait_for_communication(weights_done_);
  if (!trains) return;
  wait_for_communication(gradients_sent_);
  for (const Parameter& parameter : unit_.parameters()) parameter.reset_gradient();
}

void TiedEnds::after_head() {
  if (!last_ || gradients_.empty()) return;
  for (const Parameter& parameter : trained(unit_)) {
    if (!parameter.has_gradient()) parameter.gradient().zero();
  }
  send_or_receive(*gradients_pair_, gradients_, kLast, gradients_stream_, gradients_sent_);
}

void TiedEnds::before_embedding_backward() {
  if (!first_ || slots_.front().gradients.empty()) return;
  Slot& slot = slots_[static_cast<std::size_t>(consumed_++) % slots_.size()];
  wait_for_communication(slot.received);
  hooks_.before_backward(unit_);
  const std::vector<Parameter> parameters = trained(unit_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].gradient().copy_from(slot.gradients[i]);
    parameters[i].next_contribution();  // the next one adds
  }
  receive_into(slot);
}

void TiedEnds::finish() {
  wait_for_communication(weights_done_);
  wait_for_communication(gradients_sent_);
}

}  // namespace tessera
