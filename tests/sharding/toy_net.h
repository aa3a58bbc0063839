// A small language model for tests of the sharding layer: odd sizes, a few inner units, embeddings
// tied (one unit at both ends) or not; and a training loop over it with plain gradient descent.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/experts.h"
#include "autograd/operations.h"
#include "kernels/add/op.h"
#include "kernels/scale/op.h"
#include "optim/groups.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "sharding/comm/communicator.h"
#include "sharding/strategy/strategy.h"

namespace tessera::test {

struct ToyNet {
  static constexpr std::int64_t kVocab = 13;
  static constexpr std::int64_t kWidth = 6;
  static constexpr std::int64_t kHidden = 10;

  static constexpr std::int64_t kExperts = 4;

  struct Layer {
    Parameter up, bias, down;
    /// Undefined in a layer without experts.
    Parameter router = {}, experts_up = {}, experts_down = {};
  };

  /// `mixtures`: layers 0, 2, 4, ... have experts.
  explicit ToyNet(int layer_count = 4, bool checkpointing = false, bool tied = true,
                  bool mixtures = false) {
    if (tied) {
      units.push_back(std::make_unique<Unit>("ends", std::vector{table, norm_weight, norm_bias},
                                             /*at_both_ends=*/true));
    } else {
      units.push_back(std::make_unique<Unit>("first", std::vector{table}));
      head = Parameter("head", {kVocab, kWidth}, Initializer::normal(0.5));
    }
    for (int i = 0; i < layer_count; ++i) {
      const std::string name = "layer." + std::to_string(i);
      const Initializer normal = Initializer::normal(0.4);
      layers.push_back({Parameter(name + ".up", {kWidth, kHidden}, normal),
                        Parameter(name + ".bias", {kHidden}, normal),
                        Parameter(name + ".down", {kHidden, kWidth}, normal)});
      Layer& layer = layers.back();
      std::vector<Parameter> parameters = {layer.up, layer.bias, layer.down};
      if (mixtures && i % 2 == 0) {
        layer.router = Parameter(name + ".router", {kExperts, kWidth}, normal);
        layer.experts_up = Parameter(name + ".experts.up", {kExperts, 2 * kWidth, kWidth}, normal);
        layer.experts_down = Parameter(name + ".experts.down", {kExperts, kWidth, kWidth}, normal);
        layer.experts_up.set_stacked();
        layer.experts_down.set_stacked();
        for (const Parameter& p : {layer.router, layer.experts_up, layer.experts_down}) {
          parameters.push_back(p);
        }
      }
      units.push_back(std::make_unique<Unit>(name, parameters));
      units.back()->set_checkpointing(checkpointing);
    }
    if (!tied) {
      units.push_back(std::make_unique<Unit>("last", std::vector{norm_weight, norm_bias, head}));
    }
  }

  /// Rules may have parameters computed in different dtypes: `x` in that of `parameter`.
  static Variable in_dtype_of(const Variable& x, const Parameter& parameter) {
    const DType dtype = parameter.data().dtype();
    return x.data().dtype() == dtype ? x : cast(x, dtype);
  }

  static Variable mixture(const Variable& x, const Layer& layer) {
    const Variable h = in_dtype_of(x, layer.router);
    const Routing routing = route(linear(h, layer.router, Parameter(), WeightLayout::out_in),
                                  {.experts_per_token = 2, .bias = {}});
    return experts(h, routing, layer.experts_up, layer.experts_down, {});
  }

  /// factor * sum of the cross-entropies.
  Variable loss(const Tensor& ids, const Tensor& targets, double factor) const {
    Variable x = units[0]->run_once([&](const Variable&) { return embedding(ids, table); }, {});
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto run = [layer = layers[i]](const Variable& before) {
        const Variable h = in_dtype_of(before, layer.up);
        const Variable hidden = gelu(linear(h, layer.up, layer.bias, WeightLayout::in_out));
        const Variable y = add(h, linear(hidden, layer.down, Parameter(), WeightLayout::in_out));
        return layer.router.defined() ? add(y, mixture(y, layer)) : y;
      };
      x = units[i + 1]->run(run, x);
    }
    Unit& last = head.defined() ? *units.back() : *units.front();
    return last.run_once(
        [&](const Variable& h) {
          const Variable y = layer_norm(in_dtype_of(h, norm_weight), norm_weight, norm_bias, 1e-5f);
          const Parameter& last = head.defined() ? head : table;
          return linear_cross_entropy(in_dtype_of(y, last), last, targets, factor);
        },
        x);
  }

  Parameter table{"table", {kVocab, kWidth}, Initializer::normal(0.5)};
  Parameter norm_weight{"norm.weight", {kWidth}, Initializer::ones()};
  Parameter norm_bias{"norm.bias", {kWidth}, Initializer::zeros()};
  Parameter head;  // undefined if tied
  std::vector<Layer> layers;
  Units units;
};

/// Everything that must be equal, as bits.
struct Trained {
  std::vector<float> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;
  bool operator==(const Trained&) const = default;
};

struct ToyTraining {
  static constexpr std::int64_t kTokens = 7;  // per micro-batch

  int steps = 4;
  double learning_rate = 0.5;
  double clip_norm = 0.1;
  /// Two groups that update instead, the second at a fifth of the learning rate. Null: gradient descent.
  OptimizerGroups* optimizer = nullptr;

  static Tensor tokens(const char* stream, std::int64_t step, std::int64_t micro_batch) {
    const RandomStream random(5, stream, static_cast<std::uint64_t>(step),
                              static_cast<std::uint64_t>(micro_batch));
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i < kTokens; ++i) {
      ids.push_back(static_cast<std::int32_t>(random.below(i, ToyNet::kVocab)));
    }
    return Tensor::from(ids, {kTokens});
  }

  /// Forward and backward of a step's micro-batches. Returns this rank's losses, one by one.
  std::vector<float> accumulate_gradients(ToyNet& net, Step& sharded, Communicator& world,
                                          int micro_batches, int step) const {
    const double factor = 1.0 / static_cast<double>(kTokens * micro_batches * world.size());
    std::vector<float> losses;
    for (int i = 0; i < micro_batches; ++i) {
      const std::int64_t micro_batch = i * world.size() + world.rank();
      const Variable loss =
          net.loss(tokens("ids", step, micro_batch), tokens("targets", step, micro_batch), factor);
      losses.push_back(loss.data().item<float>());
      backward(loss);
      sharded.finish_micro_batch();
    }
    return losses;
  }

  /// Their sum in order.
  static float sum_of(const std::vector<float>& losses) {
    return std::accumulate(losses.begin(), losses.end(), 0.0f);
  }
  /// Their sum in a binary tree.
  static float tree_sum_of(std::vector<float> losses) {
    for (; losses.size() > 1; losses.resize(losses.size() / 2)) {
      for (std::size_t i = 0; i < losses.size() / 2; ++i) {
        losses[i] = losses[2 * i] + losses[2 * i + 1];
      }
    }
    return losses.front();
  }

  /// A step without an update: afterwards the shards hold the gradients.
  float differentiate(ToyNet& net, Strategy& strategy, Communicator& world, int micro_batches,
                      int step) const {
    Step sharded = strategy.start_step();
    const float loss = sum_of(accumulate_gradients(net, sharded, world, micro_batches, step));
    sharded.discard();
    return loss;
  }

  void update(const std::vector<Shard>& shards, double norm) const {
    const double scale = norm > clip_norm ? clip_norm / norm : 1.0;
    if (optimizer != nullptr) {
      return optimizer->step(std::vector{learning_rate, learning_rate / 5.0, 0.25}, scale);
    }
    context().compute_stream().synchronize();  // offloaded gradients have arrived
    for (const Shard& shard : shards) {
      if (!shard.gradient.defined()) continue;
      const Shape& shape = shard.data.shape();
      const Tensor step = shard.data.device().is_cpu() ? Tensor::empty_on_host(shape, DType::f32)
                                                       : Tensor::empty(shape, DType::f32);
      tessera::scale(step, shard.gradient.reshape(shard.data.shape()), -learning_rate * scale);
      tessera::add(shard.data, shard.data, step);
    }
  }

  /// One step as one rank of `world`; every rank adds the same to `trained`.
  void step(ToyNet& net, Strategy& strategy, Communicator& world, int micro_batches, int step,
            Trained& trained) const {
    Step sharded = strategy.start_step();
    std::vector<float> losses = accumulate_gradients(net, sharded, world, micro_batches, step);
    if (!strategy.plan().elastic) losses = {sum_of(losses)};
    losses.push_back(0.0f);  // whether to stop
    const auto count = static_cast<std::int64_t>(losses.size());
    const Tensor sum = Tensor::from(losses, {count});
    const Stream& stream = context().side_stream("communication");
    stream.wait(context().compute_stream().record());
    world.all_reduce({sum}, stream, "loss").synchronize();
    losses = sum.to_vector<float>();
    losses.pop_back();
    trained.losses.push_back(tree_sum_of(losses));
    trained.norms.push_back(sharded.gradient_norm().value());
    sharded.update([&] { update(strategy.shards(), trained.norms.back()); },
                   optimizer == nullptr ? Writes::masters : Writes::masters_and_copies);
  }

  static void collect_weights(Strategy& strategy, Trained& trained) {
    strategy.visit_whole([&](const Parameter& parameter, const Tensor& whole) {
      trained.weights[parameter.name()] = whole.to_vector<float>();
    });
  }
};

}  // namespace tessera::test
