#include "sharding/strategy/tied_ends.h"

#include "autograd/variable.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/message_stream.h"
#include "sharding/strategy/windows.h"

namespace tessera {
namespace {

/// The ranks of a pair, in the order of the world's.
constexpr int kFirst = 0, kLast = 1;

/// The tensors of each part, in one block of memory.
std::vector<Tensors> tensors_of(const std::vector<TiedPart>& parts, TiedTensors of, DType dtype) {
  const Tensor memory = Tensor::zeros({tied_elements(parts, of)}, dtype);
  std::vector<Tensors> all;
  std::int64_t offset = 0;
  for (const TiedPart& part : parts) {
    Tensors& tensors = all.emplace_back();
    for (std::int64_t i = 0; i < part.count(of); ++i) {
      tensors.push_back(window_of(memory, Range{offset, part.shape.numel()}).reshape(part.shape));
      offset += part.place();
    }
  }
  return all;
}

Tensors joined(const std::vector<Tensors>& all) {
  Tensors joined;
  for (const Tensors& tensors : all) joined.insert(joined.end(), tensors.begin(), tensors.end());
  return joined;
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
  weights_stream_ = message_stream("tied weights");
  gradients_stream_ = message_stream("tied gradients");
  const PipelinePlan& pipeline = plan.pipeline;
  trained_ = pipeline.tied;
  std::erase_if(trained_, [](const TiedPart& part) { return !part.parameter.trainable(); });
  if (first_) {
    const CategoryScope category(Category::communication);
    for (int slot = 0; slot < pipeline.tied_slots(); ++slot) {
      slots_.push_back({tensors_of(trained_, TiedTensors::summands, DType::f32), {}});
    }
    return;
  }
  {
    const CategoryScope category(Category::parameters);
    weights_ = joined(tensors_of(pipeline.tied, TiedTensors::weights, pipeline.message_dtype));
  }
  const CategoryScope category(Category::gradients);
  const Tensors gradients = joined(tensors_of(trained_, TiedTensors::gradients, DType::f32));
  for (std::size_t i = 0; i < weights_.size(); ++i) pipeline.tied[i].parameter.open(weights_[i]);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    trained_[i].parameter.open_gradient(gradients[i]);
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
  send_or_receive(*gradients_pair_, joined(slot.gradients), kLast, gradients_stream_,
                  slot.received);
}

void TiedEnds::before_head(bool trains) {
  if (!last_) return;
  wait_for_communication(weights_done_);
  if (!trains) return;
  wait_for_communication(gradients_sent_);
  sent_.clear();
  for (const Parameter& parameter : unit_.parameters()) parameter.reset_gradient();
}

void TiedEnds::after_head() {
  if (!last_ || trained_.empty()) return;
  for (const TiedPart& part : trained_) {
    if (part.leaves > 1) {
      for (const Tensor& leaf : part.parameter.take_leaf_gradients()) sent_.push_back(leaf);
      continue;
    }
    if (!part.parameter.has_gradient()) part.parameter.gradient().zero();
    sent_.push_back(part.parameter.gradient());
  }
  send_or_receive(*gradients_pair_, sent_, kLast, gradients_stream_, gradients_sent_);
}

void TiedEnds::before_embedding_backward() {
  if (!first_ || trained_.empty()) return;
  Slot& slot = slots_[static_cast<std::size_t>(consumed_++) % slots_.size()];
  wait_for_communication(slot.received);
  hooks_.before_backward(unit_);
  const CategoryScope category(Category::activations);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Parameter& parameter = trained_[i].parameter;
    if (trained_[i].leaves > 1) {
      Tensors leaves;  // the embedding adds to them while the slot receives the next ones
      for (const Tensor& leaf : slot.gradients[i]) leaves.push_back(leaf.clone());
      parameter.leave_leaf_gradients(std::move(leaves));
      continue;
    }
    parameter.gradient().copy_from(slot.gradients[i].front());
    parameter.next_contribution();  // the next one adds
  }
  receive_into(slot);
}

void TiedEnds::finish() {
  wait_for_communication(weights_done_);
  wait_for_communication(gradients_sent_);
  sent_.clear();
}

}  // namespace tessera
