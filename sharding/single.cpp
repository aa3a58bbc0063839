// One rank owns everything: no hook has anything to gather, reduce or let go.
#include "runtime/category.h"
#include "sharding/strategy.h"

namespace tessera {
namespace {

class SingleStrategy final : public Strategy {
 public:
  SingleStrategy(const Units& units, std::uint64_t seed) {
    for (const auto& unit : units) {
      for (const Parameter& parameter : unit->parameters()) own(parameter, seed);
    }
    for (const auto& unit : units) unit->attach(this);
  }

  ~SingleStrategy() override {
    for (const Shard& shard : shards_) {
      shard.parameter.close();
      shard.parameter.close_gradient();
    }
  }

  void before_forward(Unit&) override {}
  void after_forward(Unit&) override {}
  void before_backward(Unit&) override {}
  void after_backward(Unit&) override {}

  // A parameter that this step never used has a gradient of zero, not the last step's.
  void finish_backward() override {
    for (const Shard& shard : shards_) {
      if (!shard.parameter.has_gradient()) shard.gradient.zero();
    }
  }

  void start_step() override {
    for (const Shard& shard : shards_) shard.parameter.reset_gradient();
  }

  const std::vector<Shard>& shards() const override { return shards_; }

 private:
  void own(const Parameter& parameter, std::uint64_t seed) {
    Shard shard{.parameter = parameter};
    {
      const CategoryScope category(Category::parameters);
      shard.data = Tensor::empty(parameter.shape(), DType::f32);
    }
    {
      const CategoryScope category(Category::gradients);
      shard.gradient = Tensor::empty(parameter.shape(), DType::f32);
    }
    parameter.initialize(shard.data, 0, seed);
    parameter.open(shard.data);
    parameter.open_gradient(shard.gradient);
    parameter.reset_gradient();
    shards_.push_back(std::move(shard));
  }

  std::vector<Shard> shards_;
};

}  // namespace

std::unique_ptr<Strategy> make_single_strategy(const Units& units, std::uint64_t seed) {
  return std::make_unique<SingleStrategy>(units, seed);
}

}  // namespace tessera
