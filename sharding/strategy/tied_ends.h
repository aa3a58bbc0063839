// TiedEnds: one unit at both ends of a pipeline.
//
// The first stage owns the unit. The last stage has a copy of its weights, which the first sends at the start of a
// step, and a buffer for the gradients of the head. It sends them after each micro-batch, and the backward pass of
// the embedding adds to them, as on one rank. With a grid the table has a gradient for each leaf of a rank's tokens,
// and the embedding adds to each. So the sums have the same bits, and the unit is updated, counted and saved once.
//
// The first stage gets to a micro-batch later than the last stage, by as many passes as there are ranks. So many
// gradients may be on their way, and it has a slot for each (PipelinePlan::tied_slots).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "autograd/unit.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "sharding/comm/communicator.h"
#include "sharding/plan/plan.h"

namespace tessera {

class TiedEnds {
 public:
  /// `hooks` opens the unit's parameters on the first stage. A collective over `world`; all arguments must outlive
  /// the object.
  TiedEnds(const Plan& plan, Unit& unit, UnitHooks& hooks, Communicator& world);
  /// Calls that are still queued keep their communicators.
  ~TiedEnds();
  TiedEnds(const TiedEnds&) = delete;
  TiedEnds& operator=(const TiedEnds&) = delete;

  /// The weights may have changed: queues their copy. `trains`: the micro-batches of a step follow.
  void start(bool trains);
  /// On the last stage, before the head runs.
  void before_head(bool trains);
  /// On the last stage: the gradients of the head are complete.
  void after_head();
  /// On the first stage, before the backward pass of the next micro-batch: writes the head's gradients where that
  /// of the embedding adds to them.
  void before_embedding_backward();
  /// Waits for the messages that have been sent.
  void finish();

 private:
  struct Slot {
    std::vector<Tensors> gradients;  // of the trained parameters
    std::optional<Event> received;
  };

  void send_or_receive(Communicator& pair, const Tensors& tensors, int root, const Stream& stream,
                       std::optional<Event>& done) const;
  void receive_into(Slot& slot);

  const Plan& plan_;
  Unit& unit_;
  UnitHooks& hooks_;
  const bool first_, last_;
  /// Groups of a rank of the first stage and one of the last, alike along all other axes.
  std::shared_ptr<Communicator> weights_pair_, gradients_pair_;
  Stream weights_stream_, gradients_stream_;
  std::vector<TiedPart> trained_;
  Tensors weights_;                  // on the last stage
  Tensors sent_;                     // there, gradients that are on their way
  std::vector<Slot> slots_;          // on the first stage
  int received_ = 0, consumed_ = 0;  // micro-batches of this step
  std::optional<Event> weights_done_, gradients_sent_;
};

}  // namespace tessera
