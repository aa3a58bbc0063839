// Rung 12, pipeline parallelism: each rank has a few neighbouring units, a stage.
//
// The parts of the batch are micro-batches. Their activations go from stage to stage, and the gradients of these come
// back. A rank holds 16 bytes per parameter of its stage only. Its gradients are kept for each micro-batch, and added in
// the order of the tree over ranks, as in rung 1. The order of the passes is that of `gpipe`.
#include "examples/ladder/ladder.h"
#include "kernels/tree_reduce/op.h"
#include "sharding/plan/pipeline_schedule.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    const auto all = static_cast<std::int64_t>(units().size()), blocks = all - 2;
    stage_ = {.first = rank_ == 0 ? 0 : 1 + rank_ * blocks / ranks_,
              .last = rank_ + 1 == ranks_ ? all : 1 + (rank_ + 1) * blocks / ranks_};
    even_ = world_.split(rank_ / 2);       // ranks 0 and 1, 2 and 3
    odd_ = world_.split((rank_ + 1) / 2);  // ranks 1 and 2
    std::vector<ParameterShard> shards;
    for (std::int64_t u = stage_.first; u < stage_.last; ++u) {
      const Unit& unit = *units()[static_cast<std::size_t>(u)];
      const std::int64_t elements = ladder::elements_of(unit);
      values_.push_back(ladder::zeros(elements, Category::parameters));
      ladder::initialize(unit, values_.back());
      ladder::open_values(unit, values_.back());
      gradients_.emplace_back();
      for (int part = 0; part < parts_; ++part) {
        gradients_.back().push_back(ladder::zeros(elements, Category::gradients));
      }
      shards.push_back({unit.name(), values_.back(), gradients_.back().front()});
    }
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    const auto order =
        pipeline_order(PipelineSchedule::gpipe, {.ranks = ranks_, .micro_batches = parts_});
    std::vector<Variable> inputs(static_cast<std::size_t>(parts_)), outputs(inputs.size());
    for (const PipelinePass& pass : order[static_cast<std::size_t>(rank_)]) {
      const auto part = static_cast<std::size_t>(pass.micro_batch);
      open_gradients(part);
      if (pass.kind == PipelinePass::Kind::forward) {
        if (rank_ > 0) inputs[part] = Variable::leaf(receive(before()));
        outputs[part] = loss_of_stage(step, pass.micro_batch, stage_, inputs[part]);
        if (rank_ + 1 < ranks_) send(behind(), outputs[part].data());
      } else {
        backward(outputs[part], rank_ + 1 < ranks_ ? receive(behind()) : Tensor());
        if (rank_ > 0) send(before(), inputs[part].gradient());
        inputs[part] = outputs[part] = Variable();
      }
    }
    for (const std::vector<Tensor>& parts : gradients_) {
      tree_reduce(parts.front(), parts, Reduction::sum);
    }
    optimizer_->step(ladder::kLearningRate);
  }

  void open_gradients(std::size_t part) {
    for (std::size_t u = 0; u < gradients_.size(); ++u) {
      ladder::open_gradients(*units()[static_cast<std::size_t>(stage_.first) + u],
                             gradients_[u][part]);
    }
  }

  /// The group of this rank and the one before it, or behind it.
  Communicator& before() { return rank_ % 2 == 1 ? *even_ : *odd_; }
  Communicator& behind() { return rank_ % 2 == 0 ? *even_ : *odd_; }

  /// A message to the other rank of a pair. A rank sends nothing to itself.
  void send(Communicator& pair, const Tensor& tensor) {
    exchange(pair, Tensor::empty({0}, DType::f32), tensor);
  }
  Tensor receive(Communicator& pair) {
    const Tensor received = Tensor::empty({ladder::kTokens, ladder::kWidth}, DType::f32);
    exchange(pair, received, Tensor::empty({0}, DType::f32));
    return received.reshape({1, ladder::kTokens, ladder::kWidth});
  }
  static void exchange(Communicator& pair, const Tensor& received, const Tensor& sent) {
    const auto other = static_cast<std::size_t>(1 - pair.rank());
    std::vector<std::int64_t> receives(2, 0), sends(2, 0);
    receives[other] = received.numel(), sends[other] = sent.numel();
    pair.all_to_all_parts({received, receives}, {sent, sends}, context().compute_stream())
        .synchronize();
  }

  Stage stage_;
  std::unique_ptr<Communicator> even_, odd_;
  std::vector<Tensor> values_;                  // per unit of the stage
  std::vector<std::vector<Tensor>> gradients_;  // per unit of the stage and micro-batch
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
