// PipelinePasses: the forward and backward passes of one rank of a pipeline, in the order of its schedule.
//
// Each pass computes a stage of the model (sharding/plan/stages.h) for one micro-batch:
//
//   forward    receives the activations of the stage before; computes the stage; sends its activations
//   backward   receives the gradient of these; computes the stage's gradients; sends that of its input
//
// The head computes its gradients in forward. So on the last stage it runs when the backward pass begins, and every
// schedule adds gradients in the order of micro-batches. The receive of the next pass is queued before this pass
// computes.
//
// Passes without gradients go through the stages in order (models/stage_relay.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "autograd/deferred_gradients.h"
#include "models/language_model.h"
#include "models/routers.h"
#include "models/stage_relay.h"
#include "sharding/strategy/pipeline_channels.h"
#include "sharding/strategy/strategy.h"
#include "sharding/strategy/tied_ends.h"
#include "tools/data/loader.h"

namespace tessera {

class PipelinePasses final : public StageRelay {
 public:
  /// The model's relay. A collective over `world`. All arguments must outlive the passes.
  PipelinePasses(LanguageModel& model, Strategy& strategy, Communicator& world);
  ~PipelinePasses() override { model_.set_relay(nullptr); }
  PipelinePasses(const PipelinePasses&) = delete;
  PipelinePasses& operator=(const PipelinePasses&) = delete;

  /// The session, as the passes of a step need it. `i` counts this rank's micro-batches.
  struct Training {
    std::function<Batch(std::int64_t i)> batch;
    /// Sets the position of dropout's random numbers.
    std::function<void(std::int64_t i)> enter;
    /// On the last stage: takes the loss of a micro-batch, before its backward pass.
    std::function<void(std::int64_t i, const Tensor& loss)> add_loss;
    std::function<RowObjective(std::int64_t i, const Batch& batch)> objective;  // or no objective
    double loss_scale = 1.0;
    Shape tokens;  // [B, T] of a micro-batch
  };
  /// Forward and backward of all micro-batches.
  void train(Step& step, const Training& training);

  /// The loss of a batch without gradients: LanguageModel::loss on the rank of the last stage, undefined on
  /// the others.
  Variable loss(const Batch& batch, double loss_scale, const RowObjective& objective);

  Variable run_stages(const Shape& tokens, const StageFunction& compute) override;
  Tensor share(const Tensor& result, const Shape& shape, DType dtype) override;
  DType dtype() const override { return plan().message_dtype; }

 private:
  /// A micro-batch of a chunk between its forward and its backward pass.
  struct InFlight {
    Batch batch;
    Variable input, output;
    StageMessage sent;  // activations, and the counts so far
    RoutedPass routed;
    /// Gradients of weights for a pass of their own.
    DeferredGradients deferred = {};
  };
  using Pass = PipelinePass;

  const PipelinePlan& plan() const { return strategy_.plan().pipeline; }
  int stage_of(const Pass& pass) const { return pass.chunk * plan().shape.ranks + rank_; }
  Stage parts_of(int stage, bool with_head) const;
  bool receives(const Pass& pass) const;
  bool receives_counts(const Pass& pass) const;
  /// Queues the receipt of the message that a pass waits for, if it waits for one.
  void receive_for(const Pass& pass, const Shape& tokens);
  /// The shape of a message between stages, for `tokens` [B, T].
  Shape message_shape(const Shape& tokens) const;
  /// The received message; empty if the pass waits for none.
  StageMessage take_received();
  /// Frees the message of the send before.
  void send(MessageKind kind, StageMessage message);
  void wait_for_sends();
  void start(bool trains);
  /// `x` itself if there are no parts.
  Variable compute(const Stage& parts, const Variable& x, const Batch& batch, double loss_scale,
                   bool training, const RowObjective& objective = {});
  void forward(const Pass& pass, InFlight& here, const StageMessage& received,
               const Training& training);
  void backward(const Pass& pass, InFlight& here, const StageMessage& received,
                const Training& training);
  /// hf: the counts so far with the stage's; and the losses of its layers by the counts of all.
  Tensor count(InFlight& here, const Tensor& before) const;
  Tensor balance(InFlight& here, const Tensor& counts) const;

  LanguageModel& model_;
  Strategy& strategy_;
  const int rank_;  // along the pipeline
  PipelineChannels channels_;
  std::optional<TiedEnds> tied_;
  std::map<std::pair<int, int>, InFlight> in_flight_;  // by chunk and micro-batch
  StageMessage received_, sent_;
  /// The last start was for passes without gradients: the weights are the same since.
  bool evaluates_ = false;
};

}  // namespace tessera
