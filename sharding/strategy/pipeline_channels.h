// PipelineChannels: the messages between neighbouring stages of a pipeline.
//
// A message goes from one rank to the next along the axis "pipeline", or back, between ranks that are alike along
// all other axes. It is a broadcast in a group of two. Each pair and direction has a communicator and a stream of its
// own, so that no message waits for one in the other direction. A receive is queued before it is needed, and a send
// is waited for when its tensor is to be freed: both overlap with computation.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/plan.h"

namespace tessera {

/// Activations go to the stage behind, gradients to the stage before.
enum class MessageKind { activations, gradients };

/// Activations or their gradients, and counts of experts (PipelinePlan::counters). It may lack either.
struct StageMessage {
  Tensor stream, counts;
  /// After it, when it has been queued.
  std::optional<Event> done = {};

  Tensors tensors() const;
};

class PipelineChannels {
 public:
  /// A collective over `world`, which must outlive the channels.
  PipelineChannels(const Plan& plan, Communicator& world);
  /// Calls that are still queued keep their communicators.
  ~PipelineChannels();
  PipelineChannels(const PipelineChannels&) = delete;
  PipelineChannels& operator=(const PipelineChannels&) = delete;

  /// Messages from now on come after the ranks' calls so far.
  void start();
  /// Queues a message to the next rank of its direction. An empty one is not sent.
  void send(MessageKind kind, StageMessage& message);
  /// Queues the receipt of the next message into `message`.
  void receive(MessageKind kind, StageMessage& message);

 private:
  /// One end of a pair.
  struct Channel {
    std::shared_ptr<Communicator> pair;
    int root = 0;  // the sender's rank in the pair
    Stream stream;
  };

  static void queue(const Channel& channel, StageMessage& message);
  /// By kind.
  std::array<Channel, 2> sends_, receives_;
};

}  // namespace tessera
