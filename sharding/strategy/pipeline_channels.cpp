#include "sharding/strategy/pipeline_channels.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/message_stream.h"

namespace tessera {
namespace {

constexpr std::array kKinds = {MessageKind::activations, MessageKind::gradients};

std::string name_of(MessageKind kind) {
  return kind == MessageKind::activations ? "activations" : "gradients";
}

}  // namespace

PipelineChannels::PipelineChannels(const Plan& plan, Communicator& world) {
  const int ranks = plan.pipeline.shape.ranks, own = plan.pipeline_rank(world.rank());
  // Each rank's place along the pipeline, and its place along all other axes.
  std::vector<int> places, others;
  for (int rank = 0; rank < world.size(); ++rank) {
    places.push_back(plan.pipeline_rank(rank));
    others.push_back(plan.mesh.group_along(rank, {"pipeline"}));
  }
  // All ranks split all pairs off, in one order. The last rank sends to the first if ranks have several stages.
  for (const MessageKind kind : kKinds) {
    const auto k = static_cast<std::size_t>(kind);
    for (int before = 0; before < (plan.pipeline.shape.chunks > 1 ? ranks : ranks - 1); ++before) {
      const int behind = (before + 1) % ranks;
      std::shared_ptr<Communicator> pair = world.split([&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        return 2 * others[r] + (places[r] == before || places[r] == behind ? 1 : 0);
      });
      const int from = kind == MessageKind::activations ? before : behind;
      const int to = kind == MessageKind::activations ? behind : before;
      if (own != from && own != to) continue;
      Channel& channel = own == from ? sends_[k] : receives_[k];
      channel.pair = std::move(pair);
      channel.root = from < to ? 0 : 1;
      channel.stream =
          message_stream(fmt::format("{} {}", own == from ? "send" : "receive", name_of(kind)));
    }
  }
}

PipelineChannels::~PipelineChannels() {
  for (const auto* channels : {&sends_, &receives_}) {
    for (const Channel& channel : *channels) {
      if (channel.pair != nullptr) channel.stream.enqueue([pair = channel.pair] {});
    }
  }
}

void PipelineChannels::start() {
  const Event calls = communication_stream().record();
  for (const auto* channels : {&sends_, &receives_}) {
    for (const Channel& channel : *channels) {
      if (channel.pair != nullptr) channel.stream.wait(calls);
    }
  }
}

Tensors StageMessage::tensors() const {
  Tensors all;
  for (const Tensor& tensor : {stream, counts}) {
    if (tensor.defined()) all.push_back(tensor);
  }
  return all;
}

void PipelineChannels::send(MessageKind kind, StageMessage& message) {
  queue(sends_[static_cast<std::size_t>(kind)], message);
}

void PipelineChannels::receive(MessageKind kind, StageMessage& message) {
  queue(receives_[static_cast<std::size_t>(kind)], message);
}

void PipelineChannels::queue(const Channel& channel, StageMessage& message) {
  const Tensors tensors = message.tensors();
  if (tensors.empty()) return;
  channel.stream.wait(context().compute_stream().record());
  message.done = channel.pair->broadcast(tensors, channel.root, channel.stream, "pipeline");
}

}  // namespace tessera
