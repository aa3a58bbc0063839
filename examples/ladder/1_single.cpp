// Rung 1: one rank computes all parts of the batch.
//
// It holds every parameter with its gradient and AdamW's two moments: 16 bytes per parameter. The
// gradients of the parts are kept apart, and then added in the order in which ranks will add them.
// (Added one after another they would have other bits from four parts on.)
#include "examples/ladder/ladder.h"
#include "kernels/tree_reduce/op.h"

using namespace tessera;

namespace {

class Training final : public ladder::Rung {
 public:
  using Rung::Rung;

 private:
  void prepare() override {
    std::vector<ParameterShard> shards;
    for (const auto& unit : units()) {
      const std::int64_t elements = ladder::elements_of(*unit);
      values_.push_back(ladder::zeros(elements, Category::parameters));
      ladder::initialize(*unit, values_.back());
      ladder::open_values(*unit, values_.back());
      gradients_.emplace_back();
      for (int part = 0; part < parts_; ++part) {
        gradients_.back().push_back(ladder::zeros(elements, Category::gradients));
      }
      shards.push_back({unit->name(), values_.back(), gradients_.back().front()});
    }
    optimizer_.emplace(std::move(shards), ladder::kAdamW);
  }

  void step(int step) override {
    for (int part = 0; part < parts_; ++part) {
      for (std::size_t u = 0; u < units().size(); ++u) {
        ladder::open_gradients(*units()[u], gradients_[u][static_cast<std::size_t>(part)]);
      }
      backward(loss(step, part));
    }
    for (const std::vector<Tensor>& parts : gradients_) {
      tree_reduce(parts.front(), parts, Reduction::sum);
    }
    optimizer_->step(ladder::kLearningRate);
  }

  std::vector<Tensor> values_;                  // per unit
  std::vector<std::vector<Tensor>> gradients_;  // per unit and part
  std::optional<AdamW> optimizer_;
};

}  // namespace

int main(int argument_count, char** arguments) {
  return ladder::climb<Training>(argument_count, arguments, ladder::Ranks::one);
}
