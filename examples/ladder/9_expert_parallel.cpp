// Rung 9, expert parallelism: each rank holds 1/N of the experts whole, and tokens travel to them.
//
// Everything else is rung 3's DDP. The experts are most of a large model, and a token uses a few of
// them only: its rows are fewer bytes than their weights. A rank computes with its experts for the
// tokens of all ranks. The gradients that each rank's tokens give to an expert are formed apart and
// added in the order of the tree, so nothing is rounded otherwise than in rung 2.
#include "autograd/expert_exchange.h"
#include "examples/ladder/ladder.h"
#include "kernels/tree_reduce/op.h"

using namespace tessera;

namespace {

/// Brings rows to the ranks of their experts, and back.
class Exchange final : public ExpertExchange {
 public:
  explicit Exchange(Communicator& ranks) : ExpertExchange({}), group_(ranks) {}

  int ranks() const override { return group_.size(); }
  int rank() const override { return group_.rank(); }

  std::vector<std::int32_t> swap(const Tensor& sent) override {
    const Tensor received = Tensor::empty(sent.shape(), sent.dtype());
    group_.all_to_all({received}, {sent}, context().compute_stream());
    return received.to_vector<std::int32_t>();
  }

  Event move(const Tensor& received, const std::vector<std::int64_t>& received_rows,
             const Tensor& sent, const std::vector<std::int64_t>& sent_rows) override {
    return group_.all_to_all_parts({received, elements_of(received_rows, received.size(1))},
                                   {sent, elements_of(sent_rows, sent.size(1))},
                                   context().compute_stream());
  }

  void wait(const Event&) override {}  // the compute stream moves the rows

 private:
  static std::vector<std::int64_t> elements_of(std::vector<std::int64_t> rows, std::int64_t width) {
    for (std::int64_t& count : rows) count *= width;
    return rows;
  }

  Communicator& group_;
};

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    rows_ = world_.split(0);  // its calls are on another stream than the sums
    const auto exchange = std::make_shared<Exchange>(*rows_);
    std::vector<ParameterShard> shards;
    for (const auto& unit : units()) {
      gradients_.emplace_back();
      expert_gradients_.emplace_back();
      for (const Parameter& parameter : unit->parameters()) {
        const std::int64_t count = parameter.numel() / (parameter.stacked() ? ranks_ : 1);
        const std::int64_t first = parameter.stacked() ? rank_ * count : 0;
        const Tensor values = ladder::zeros(count, Category::parameters);
        parameter.initialize(values, first, ladder::kSeed);
        std::vector<Tensor> gradients;  // one per rank that rows come from
        for (int source = 0; source < (parameter.stacked() ? ranks_ : 1); ++source) {
          gradients.push_back(ladder::zeros(count, Category::gradients));
        }
        if (parameter.stacked()) parameter.share_out(exchange);
        parameter.open(values.reshape(parameter.held_shape()));
        parameter.open_gradients(shaped(gradients, parameter.held_shape()));
        shards.push_back({parameter.name(), values, gradients.front()});
        if (parameter.stacked()) {
          expert_gradients_.back().push_back(gradients);
        } else {
          gradients_.back().push_back(gradients.front());
        }
      }
    }
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    for (const auto& unit : units()) ladder::reset_gradients(*unit);
    backward(loss(step, rank_));
    wait_for_communication(stream_.record());
    optimizer_->step(ladder::kLearningRate);
  }

  void after_gradients(Unit& unit) override {
    for (const std::vector<Tensor>& sources : expert_gradients_[index_of(unit)]) {
      tree_reduce(sources.front(), sources, Reduction::sum);
    }
    world_.all_reduce(gradients_[index_of(unit)], after_computation(), unit.name());
  }

  static std::vector<Tensor> shaped(std::vector<Tensor> tensors, const Shape& shape) {
    for (Tensor& tensor : tensors) tensor = tensor.reshape(shape);
    return tensors;
  }

  std::unique_ptr<Communicator> rows_;
  std::vector<std::vector<Tensor>> gradients_;  // per unit
  std::vector<std::vector<std::vector<Tensor>>>
      expert_gradients_;  // per unit, parameter and source
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments);
}
