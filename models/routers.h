// Routers: all routers of a model together, with their biases, losses and counts.
//
// A router chooses the experts of each token (autograd/experts.h). Balance keeps the experts' loads
// alike in training (models/balance.h has its arithmetic). It needs more than a block knows: the loads
// of all layers, of all micro-batches, of all ranks. So a model has one Routers object. Its blocks
// route through it, and the trainer speaks to it once per step:
//
//   routers.set_training({.balance = Balance::bias});
//   every step:  routers.start_step({.tokens = ...});
//                the model's loss and backward, for every micro-batch
//                counts = routers.counts(), added up over the ranks
//                routers.finish_step(counts)
//
// Losses of routers have a gradient but are not part of the model's loss, which stays the mean
// cross-entropy in every mode. router_losses() has their values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/experts.h"
#include "models/balance.h"

namespace tessera {

/// The routers in training.
struct RouterTraining {
  Balance balance = Balance::none;
  /// bias: how far a bias moves in a step.
  double bias_rate = 1e-3;
  /// lagged and hf: the factor of the balance loss, a mean over tokens and layers.
  double loss_coefficient = 1e-3;
  /// The factor of the z-loss, a mean over tokens and layers too; 0: none.
  double z_loss = 0.0;
  /// For benchmarks: token n takes experts n k, ..., n k + k - 1 (modulo E), whatever its logits
  /// are. Every other expert's logit is lowered by 30,000.
  bool force_balance = false;
};

/// The size of a training step.
struct RouterStep {
  /// Tokens of all micro-batches and ranks.
  std::int64_t tokens = 1;
  /// Micro-batches of all ranks.
  std::int64_t micro_batches = 1;
  /// Parts that router_losses() has.
  std::int64_t losses = 1;
  /// The factor that f16 gives to the loss.
  double loss_scale = 1.0;
  /// Other ranks have layers too. Under `hf` the caller then balances each pass (Routers::balance).
  bool in_stages = false;
};

/// A layer in a forward pass in training.
struct RoutedLayer {
  std::int64_t layer = 0;
  /// Where the rows of each expert begin, [E + 1] (autograd/routing.h).
  Tensor offsets;
  /// hf: [rows, E], kept because the losses need the counts of all layers. Else undefined.
  Tensor logits = {};
};

/// The layers of a forward pass.
struct RoutedPass {
  std::vector<RoutedLayer> layers;
  /// The part of the losses that they add to.
  Tensor loss;
};

/// An expert bias of one layer. The model's files hold it, but no optimizer trains it.
struct RouterBias {
  std::string name;
  /// One value per expert; empty as long as there is no bias.
  std::vector<float> values;
};

/// Whether a tensor of a file is one, by its name.
bool is_router_bias(std::string_view tensor);

/// The loads of a step's experts, over all ranks and micro-batches.
struct ExpertLoads {
  /// For every layer with experts: the largest count over the mean (load_imbalance).
  std::vector<double> imbalance;
  /// Experts of all layers that had no token.
  std::int64_t idle = 0;
};

class Routers {
 public:
  Routers(std::int64_t experts, std::int64_t experts_per_token, RouterWeights weights);

  /// Adds a layer with a router of this name. Returns its number, counted from 0.
  std::int64_t add_layer(const std::string& router);
  /// The experts of each token by its logits [..., E] in this layer.
  Routing route(std::int64_t layer, const Variable& logits, bool training);

  std::int64_t layers() const { return static_cast<std::int64_t>(biases_.size()); }
  std::int64_t experts() const { return experts_; }

  /// Under `bias`, layers without biases begin with zeros.
  void set_training(const RouterTraining& training);
  const RouterTraining& training() const { return training_; }

  /// Begins a step: nothing has been counted.
  void start_step(const RouterStep& step);
  /// The model calls these before and after a forward pass in training, of all layers or of some. A block that runs again in
  /// backward is outside of them, and so is not counted twice.
  void start_forward();
  void finish_forward();
  /// hf, in stages: the last forward pass. balance() takes it before its backward pass, with the counts of all
  /// layers: those that counts_of() has on each rank, added up.
  RoutedPass take_pass();
  /// How often the pass chose each expert, [E]: the sum over its layers. Waits for the device.
  std::vector<std::int64_t> counts_of(const RoutedPass& pass) const;
  void balance(const RoutedPass& pass, const std::vector<std::int64_t>& counts);
  /// How often this rank chose each expert since start_step(), [layers * E]; 0 in layers of other ranks'
  /// stages. Waits for the device.
  std::vector<std::int64_t> counts() const;
  /// This rank's balance and z-losses since start_step(), without the loss scale, [RouterStep::losses]
  /// f32: a layer's forward pass i adds to part i modulo their number. The sum of all parts and ranks is
  /// the step's.
  const Tensor& router_losses() const { return losses_; }
  /// Takes the counts of all ranks: moves the biases, and keeps the counts for `lagged`.
  void finish_step(const std::vector<std::int64_t>& counts);
  /// The last finished step. A run that continues needs it: `lagged` depends on the step before.
  struct LastStep {
    /// Those of all ranks, [layers * E]; empty before the first step.
    std::vector<std::int64_t> counts;
    std::int64_t tokens = 0;
  };
  const LastStep& last_step() const { return last_; }
  /// Raises Error unless there are counts for every expert, or none.
  void set_last_step(LastStep last);
  /// The loads of the last finished step.
  ExpertLoads loads() const;

  /// One per layer. Files have them under their names, as Transformers names DeepSeek-V3's.
  const std::vector<RouterBias>& biases() const { return biases_; }
  bool has_biases() const { return !biases_.empty() && !biases_.front().values.empty(); }
  /// Raises Error unless there is one finite value per expert.
  void set_bias(std::size_t layer, std::vector<float> values);

 private:
  void check_counts(const std::vector<std::int64_t>& counts) const;
  bool has_loss() const;
  Tensor bias_of(std::int64_t layer, DType dtype);
  /// Factors of a layer's balance loss by the counts that it depends on; zeros if there are none.
  Tensor factors_of(const std::vector<std::int64_t>& counts, std::int64_t counted_tokens,
                    std::int64_t tokens, DType dtype) const;
  Variable with_losses(std::int64_t layer, const Variable& logits);
  Variable with_forced_choice(const Variable& logits);
  void add_loss(std::int64_t layer, const Tensor& logits, const Tensor& loss);
  /// The losses of a pass are added up leaf by leaf, and then to `loss`.
  void start_leaves();
  void finish_leaves(const Tensor& loss);
  /// The part of the losses that this forward pass adds to.
  Tensor loss_of_pass(std::int64_t layer) const;
  std::vector<std::int64_t> counts_of_layer(const std::vector<std::int64_t>& counts,
                                            std::int64_t layer) const;

  std::int64_t experts_, experts_per_token_;
  RouterWeights weights_;
  RouterTraining training_;
  std::vector<RouterBias> biases_;
  /// The biases on the device, made at their first use.
  std::vector<Tensor> device_biases_;
  /// The losses of every layer, read by its backward pass.
  std::vector<std::shared_ptr<RouterLossTerms>> terms_;
  /// A forward pass in training is running, within a step.
  bool in_step_ = false, recording_ = false;
  RouterStep step_;
  /// This forward pass, and the choices of all of this step's.
  RoutedPass pass_;
  std::vector<RoutedLayer> chosen_in_step_;
  Tensor losses_;
  /// The losses of a pass for each leaf of this rank's tokens (autograd/leaf_sum.h), [leaves] f32, where there
  /// are several: all layers of a leaf are added before leaves are.
  Tensor losses_of_leaves_;
  /// Forward passes of each layer since start_step().
  std::vector<std::int64_t> passes_;
  LastStep last_;
  /// force_balance: added to the logits.
  Tensor forced_;
};

}  // namespace tessera
