#include "tools/train/pipeline_passes.h"

#include <vector>

#include "autograd/engine.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

using Kind = PipelinePass::Kind;

PipelinePasses::PipelinePasses(LanguageModel& model, Strategy& strategy, Communicator& world)
    : model_(model),
      strategy_(strategy),
      rank_(strategy.plan().pipeline_rank(world.rank())),
      channels_(strategy.plan(), world) {
  if (!plan().tied.empty()) {
    tied_.emplace(strategy.plan(), *model.units().front(), strategy, world);
  }
  model.set_relay(this);
}

void PipelinePasses::start(bool trains) {
  channels_.start();
  if (tied_) tied_->start(trains);
  evaluates_ = !trains;
}

void PipelinePasses::train(Step& step, const Training& training) {
  const std::vector<Pass> passes =
      pipeline_order(plan().schedule, plan().shape)[static_cast<std::size_t>(rank_)];
  start(/*trains=*/true);
  receive_for(passes.front(), training.tokens);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    const StageMessage received = take_received();
    if (i + 1 < passes.size()) receive_for(passes[i + 1], training.tokens);
    training.enter(pass.micro_batch);
    InFlight& here = in_flight_[{pass.chunk, pass.micro_batch}];
    switch (pass.kind) {
      case Kind::forward:
        forward(pass, here, received, training);
        continue;
      case Kind::backward:
        backward(pass, here, received, training);
        break;
      case Kind::input_gradient: {
        const DeferringScope deferring(here.deferred);
        backward(pass, here, received, training);
        continue;
      }
      case Kind::weight_gradient: {
        const Span span("backward");
        here.deferred.run();
        break;
      }
    }
    in_flight_.erase({pass.chunk, pass.micro_batch});
    step.finish_micro_batch(pass.chunk);
  }
  wait_for_sends();
  if (tied_) tied_->finish();
}

void PipelinePasses::forward(const Pass& pass, InFlight& here, const StageMessage& received,
                             const Training& training) {
  const int stage = stage_of(pass);
  here.batch = training.batch(pass.micro_batch);
  const Span span("forward");
  if (stage > 0) {
    const Tensor& x = received.stream;
    here.input = plan().sends_gradient(stage) ? Variable::leaf(x) : Variable(x);
  }
  here.output = compute(parts_of(stage, /*with_head=*/false), here.input, here.batch,
                        training.loss_scale, /*training=*/true);
  here.sent.counts = count(here, received.counts);
  if (plan().is_last(stage)) return;
  here.sent.stream = here.output.data();
  channels_.send(MessageKind::activations, here.sent);
}

Tensor PipelinePasses::count(InFlight& here, const Tensor& before) const {
  if (plan().counters == 0) return {};
  here.routed = model_.routers()->take_pass();
  std::vector<std::int64_t> counts = model_.routers()->counts_of(here.routed);
  if (before.defined()) {
    const auto others = before.to_vector<std::int64_t>();
    for (std::size_t e = 0; e < counts.size(); ++e) counts[e] += others[e];
  }
  const CategoryScope category(Category::activations);
  return Tensor::from(counts, {plan().counters});
}

Tensor PipelinePasses::balance(InFlight& here, const Tensor& counts) const {
  if (!counts.defined()) return {};
  model_.routers()->balance(here.routed, counts.to_vector<std::int64_t>());
  here.routed = {};
  return counts;
}

void PipelinePasses::backward(const Pass& pass, InFlight& here, const StageMessage& received,
                              const Training& training) {
  const int stage = stage_of(pass);
  if (plan().is_last(stage)) {
    if (tied_) tied_->before_head(/*trains=*/true);
    {
      const Span span("forward");
      const PartRange& all = plan().stages.back();
      here.output = compute({all.last - 1, all.last}, here.output, here.batch, training.loss_scale,
                            /*training=*/true, training.objective(pass.micro_batch, here.batch));
    }
    training.add_loss(pass.micro_batch, here.output.data());
  } else {
    wait_for_communication(here.sent.done);
  }
  const Tensor counts = balance(here, plan().is_last(stage) ? here.sent.counts : received.counts);
  const Span span("backward");
  if (tied_ && stage == 0) tied_->before_embedding_backward();
  if (here.output.requires_gradient()) tessera::backward(here.output, received.stream);
  if (tied_ && plan().is_last(stage)) tied_->after_head();
  const bool below = plan().sends_gradient(stage);
  if (stage > 0) send(MessageKind::gradients, {below ? here.input.gradient() : Tensor(), counts});
  here.batch = {};
  here.sent = {};
  here.input = here.output = {};
}

Variable PipelinePasses::loss(const Batch& batch, double loss_scale,
                              const RowObjective& objective) {
  return run_stages(batch.inputs.shape(), [&](const Stage& parts, const Variable& x) {
    return compute(parts, x, batch, loss_scale, /*training=*/false, objective);
  });
}

Variable PipelinePasses::run_stages(const Shape& tokens, const StageFunction& compute) {
  const NoGradient no_gradient;
  if (!evaluates_) start(/*trains=*/false);
  Variable result;
  for (int chunk = 0; chunk < plan().shape.chunks; ++chunk) {
    const Pass pass{.kind = Kind::forward, .chunk = chunk};
    const int stage = stage_of(pass);
    receive_for(pass, tokens);
    const Tensor received = take_received().stream;
    if (tied_ && plan().is_last(stage)) tied_->before_head(/*trains=*/false);
    const Variable y = compute(parts_of(stage, /*with_head=*/true),
                               received.defined() ? Variable(received) : Variable());
    if (plan().is_last(stage)) {
      result = y;
    } else {
      send(MessageKind::activations, {y.data(), {}});
    }
  }
  wait_for_sends();
  if (tied_) tied_->finish();
  return result;
}

/// From the rank of the last stage to the one before, and on from there.
Tensor PipelinePasses::share(const Tensor& result, const Shape& shape, DType dtype) {
  Tensor shared = result;
  if (!shared.defined()) {
    const CategoryScope category(Category::activations);
    shared = Tensor::empty(shape, dtype);
    StageMessage message{.stream = shared};
    channels_.receive(MessageKind::gradients, message);
    wait_for_communication(message.done);
  }
  if (rank_ > 0) {
    StageMessage message{.stream = shared};
    channels_.send(MessageKind::gradients, message);
    wait_for_communication(message.done);
  }
  return shared;
}

Variable PipelinePasses::compute(const Stage& parts, const Variable& x, const Batch& batch,
                                 double loss_scale, bool training, const RowObjective& objective) {
  if (parts.first == parts.last) return x;
  const Units& units = model_.units();  // a tied head is the first unit
  for (std::int64_t part = parts.first; part < parts.last; ++part) {
    units[static_cast<std::size_t>(part) % units.size()]->start_pass();
  }
  return model_.loss_of_stage(parts, x, batch.inputs, batch.loss_targets(), loss_scale, training,
                              batch.document_starts, objective);
}

Stage PipelinePasses::parts_of(int stage, bool with_head) const {
  const PartRange& parts = plan().stages[static_cast<std::size_t>(stage)];
  const bool without = plan().is_last(stage) && !with_head;
  return {.first = parts.first, .last = parts.last - (without ? 1 : 0)};
}

bool PipelinePasses::receives(const Pass& pass) const {
  const int stage = stage_of(pass);
  if (pass.kind == Kind::forward) return stage > 0;
  if (pass.kind == Kind::weight_gradient) return false;
  return !plan().is_last(stage) && plan().sends_gradient(stage + 1);
}

bool PipelinePasses::receives_counts(const Pass& pass) const {
  if (plan().counters == 0 || evaluates_ || pass.kind == Kind::weight_gradient) return false;
  return pass.kind == Kind::forward ? stage_of(pass) > 0 : !plan().is_last(stage_of(pass));
}

void PipelinePasses::receive_for(const Pass& pass, const Shape& tokens) {
  const CategoryScope category(Category::activations);
  StageMessage message;
  if (receives(pass)) message.stream = Tensor::empty(message_shape(tokens), plan().message_dtype);
  if (receives_counts(pass)) message.counts = Tensor::empty({plan().counters}, DType::i64);
  channels_.receive(pass.kind == Kind::forward ? MessageKind::activations : MessageKind::gradients,
                    message);
  received_ = message;
}

Shape PipelinePasses::message_shape(const Shape& tokens) const {
  const std::int64_t width = model_.shape().width;
  const Plan& whole = strategy_.plan();
  // Between layers a tensor rank has its share of the tokens (autograd/tensor_axis.h).
  const bool shares = whole.mesh.has("tensor") && tokens.numel() % whole.sum_parts == 0;
  if (!shares) return {tokens[0], tokens[1], width};
  return {tokens.numel() / whole.mesh.size_along({"tensor"}), width};
}

StageMessage PipelinePasses::take_received() {
  wait_for_communication(received_.done);
  return std::exchange(received_, {});
}

void PipelinePasses::send(MessageKind kind, StageMessage message) {
  wait_for_sends();
  channels_.send(kind, message);
  sent_ = message;
}

void PipelinePasses::wait_for_sends() {
  wait_for_communication(sent_.done);
  sent_ = {};
}

}  // namespace tessera
