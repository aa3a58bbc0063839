// The five hooks. They are the same for every strategy: what differs is who owns what
// (options.cpp), where parameters are kept (parameter_store.h) and what ranks send each other
// (exchange.h).
#include <algorithm>
#include <map>

#include "autograd/variable.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/strategy/gradient_buckets.h"
#include "sharding/strategy/gradient_norm.h"
#include "sharding/strategy/parameter_store.h"

namespace tessera {
namespace {

/// The communicators of a mesh: this rank's row, its column, and its group within the row.
struct Groups {
  std::shared_ptr<Communicator> shards;
  std::shared_ptr<Communicator> replicas;
  std::shared_ptr<Communicator> reshard_group;

  Groups(const Mesh& mesh, int group, Communicator* world) {
    if (world == nullptr) return;
    const int rank = world->rank();
    const std::shared_ptr<Communicator> all(std::shared_ptr<void>(), world);  // not ours to delete
    shards = mesh.replicas == 1 ? all : world->split(mesh.replica_of(rank));
    replicas = mesh.shards == 1 ? all : world->split(mesh.shard_of(rank));
    if (group > 1 && group < mesh.shards) reshard_group = shards->split(shards->rank() / group);
  }
};

std::unique_ptr<Exchange> make_exchange(const Recipe& recipe, const Groups& groups) {
  switch (recipe.layout) {
    case Layout::whole:
      return make_all_reduce_exchange(groups.replicas);
    case Layout::tensors:
      return make_owner_exchange(groups.shards);
    default:
      if (recipe.mesh.replicas == 1) return make_slice_exchange(groups.shards);
      return make_hybrid_exchange(groups.shards, groups.replicas);
  }
}

class ShardedStrategy final : public Strategy {
 public:
  ShardedStrategy(const Units& units, const ShardingOptions& options, std::uint64_t seed,
                  Communicator* world)
      : options_(options),
        recipe_(recipe_of(options, world == nullptr ? 1 : world->size())),
        units_(units),
        buckets_(make_buckets(units, options.buckets)),
        partition_(recipe_.layout, recipe_.mesh.shards, buckets_),
        schedule_(partition_.buckets()),
        groups_(recipe_.mesh, options.reshard_group, world),
        shard_(world == nullptr ? 0 : recipe_.mesh.shard_of(world->rank())),
        exchange_(options.strategy == StrategyKind::single ? nullptr
                                                           : make_exchange(recipe_, groups_)),
        in_backward_(buckets_.size(), false) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const int unit : buckets_[b].units) bucket_of_[units[unit].get()] = static_cast<int>(b);
    }
    make_shards(seed);
    weights_changed();
    // Whoever writes to the masters next, as when weights are loaded, does not meet the gathers.
    if (exchange_ != nullptr) wait_for_communication(communication_stream().record());
    // Somebody may load other values into offloaded masters next: nothing reads them any more.
    if (offloads(options_)) communication_stream().synchronize();
    for (const auto& unit : units) unit->attach(this);
  }

  ~ShardedStrategy() override {
    for (const auto& unit : units_) unit->attach(nullptr);
    // What is still queued may use the communicators.
    if (exchange_ != nullptr) communication_stream().enqueue([groups = groups_] {});
  }

  void before_forward(Unit& unit) override {
    if (&unit != first_unit(unit)) return;
    const int bucket = bucket_of_.at(&unit);
    position_ = next_position(bucket);
    parameters_->open(bucket, Pass::forward);
    const bool last = position_ + 1 == schedule_.steps();
    // The model's loss computes the gradients of the head on its way.
    if (last && gradients_enabled()) gradients_->open(bucket);
    if (!last) {
      prefetch_after(position_, +1);
    } else if (gradients_enabled()) {
      prefetch_after(position_, -1);  // the way back begins as soon as the head is done
    }
  }

  void after_forward(Unit& unit) override {
    if (&unit == last_unit(unit)) parameters_->close(bucket_of_.at(&unit), gradients_enabled());
  }

  void before_backward(Unit& unit) override {
    const int bucket = bucket_of_.at(&unit);
    if (in_backward_[bucket]) return;
    in_backward_[bucket] = true;
    parameters_->open(bucket, Pass::backward);
    gradients_->open(bucket);
    const auto& order = schedule_.forward;
    const auto here = std::find(order.rbegin(), order.rend(), bucket);
    prefetch_after(static_cast<int>(order.rend() - here) - 1, -1);
  }

  void after_backward(Unit& unit) override {
    if (&unit == first_unit(unit)) end_backward(bucket_of_.at(&unit));
  }

  void finish_backward() override {
    // A bucket whose first units have nothing to train does not end by itself.
    for (int b = static_cast<int>(buckets_.size()) - 1; b >= 0; --b) {
      if (in_backward_[b]) end_backward(b);
    }
    gradients_->finish_micro_batch();
  }

  void start_step() override {
    std::fill(in_backward_.begin(), in_backward_.end(), false);
    gradients_->start_step();
  }

  void weights_changed() override { parameters_->weights_changed(); }

  const std::vector<Shard>& shards() const override { return shards_; }

  GradientNorm gradient_norm() override {
    const bool disjoint = recipe_.layout != Layout::whole;
    return tessera::gradient_norm(gradients_->reduced(), disjoint ? groups_.shards.get() : nullptr);
  }

  void visit_whole(const std::function<void(const Parameter&, const Tensor&)>& visit) override;

 private:
  void make_shards(std::uint64_t seed);

  Unit* first_unit(const Unit& unit) const {
    return units_[buckets_[bucket_of_.at(&unit)].units.front()].get();
  }
  Unit* last_unit(const Unit& unit) const {
    return units_[buckets_[bucket_of_.at(&unit)].units.back()].get();
  }

  /// Where in the forward pass we are, when `bucket` is the next to run.
  int next_position(int bucket) const {
    for (int i = 1; i <= schedule_.steps(); ++i) {
      const int position = (position_ + i) % schedule_.steps();
      if (schedule_.forward[position] == bucket) return position;
    }
    fail("bucket '{}' is not part of the forward pass", buckets_[bucket].name);
  }

  /// Gathers what comes next in the direction, so far as it may be whole at the same time.
  void prefetch_after(int position, int direction) {
    const bool forward = direction > 0;
    if (!(forward ? options_.prefetch_in_forward : options_.prefetch_in_backward)) return;
    for (int ahead = 1; ahead < options_.live_gathers; ++ahead) {
      const int next = position + direction * ahead;
      if (next < (forward ? 0 : schedule_.backward_end) || next >= schedule_.steps()) return;
      parameters_->prefetch(schedule_.forward[next], forward ? Pass::forward : Pass::backward);
    }
  }

  /// Weights first: they are let go before the reduction begins.
  void end_backward(int bucket) {
    in_backward_[bucket] = false;
    parameters_->close(bucket, /*again_in_backward=*/false);
    gradients_->complete(bucket);
  }

  const ShardingOptions options_;
  const Recipe recipe_;
  const Units& units_;
  const std::vector<Bucket> buckets_;
  const Partition partition_;
  const Schedule schedule_;
  const Groups groups_;
  const int shard_;
  std::map<const Unit*, int> bucket_of_;
  std::vector<Shard> shards_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Exchange> group_exchange_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientBuckets> gradients_;
  /// Index into schedule_.forward of what ran last.
  int position_ = -1;
  std::vector<bool> in_backward_;
};

void ShardedStrategy::make_shards(std::uint64_t seed) {
  for (const Bucket& bucket : buckets_) {
    for (const Parameter& parameter : bucket.parameters)
      shards_.push_back({.parameter = parameter});
  }
  if (groups_.reshard_group != nullptr)
    group_exchange_ = make_slice_exchange(groups_.reshard_group);
  const BucketResources resources{
      .partition = partition_,
      .options = options_,
      .exchange = exchange_.get(),
      .shards = shards_,
      .group_exchange = group_exchange_.get(),
      .rank_in_group = group_exchange_ == nullptr ? 0 : groups_.reshard_group->rank()};
  parameters_ = recipe_.whole_parameters ? make_resident_parameters(resources)
                                         : make_gathered_parameters(resources);
  std::size_t index = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t p = 0; p < buckets_[b].parameters.size(); ++p) {
      Shard& shard = shards_[index++];
      const Range range = partition_.owned(static_cast<int>(b), static_cast<int>(p), shard_);
      shard.first = range.first;
      shard.data = parameters_->make_master(static_cast<int>(b), static_cast<int>(p), range);
      if (range.count == shard.parameter.numel()) {
        shard.data = shard.data.reshape(shard.parameter.shape());
      }
      shard.parameter.initialize(shard.data, range.first, seed);
    }
  }
  gradients_ = std::make_unique<GradientBuckets>(resources, recipe_.whole_gradients);
}

void ShardedStrategy::visit_whole(
    const std::function<void(const Parameter&, const Tensor&)>& visit) {
  const Stream& stream = communication_stream();
  std::size_t index = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t p = 0; p < buckets_[b].parameters.size(); ++p) {
      const Shard& shard = shards_[index++];
      const Parameter& parameter = shard.parameter;
      if (recipe_.layout == Layout::whole) {
        visit(parameter, shard.data.reshape(parameter.shape()));
        continue;
      }
      const Tensor whole = Tensor::empty({parameter.numel()}, DType::f32);
      whole.slice(shard.first, shard.first + shard.data.numel()).copy_from(shard.data);
      stream.wait(context().compute_stream().record());
      for (int owner = 0; owner < recipe_.mesh.shards; ++owner) {
        const Range part = partition_.owned(static_cast<int>(b), static_cast<int>(p), owner);
        if (part.count == 0) continue;
        groups_.shards->broadcast({whole.slice(part.first, part.end())}, owner, stream,
                                  parameter.name());
      }
      wait_for_communication(stream.record());
      visit(parameter, whole.reshape(parameter.shape()));
    }
  }
  // The caller completes its file only if the values are those of a healthy run.
  if (groups_.shards != nullptr) groups_.shards->raise_if_aborted();
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const Units& units, const ShardingOptions& options,
                                        std::uint64_t seed, Communicator* world) {
  check(world != nullptr || options.strategy == StrategyKind::single,
        "strategy {} needs a communicator, even of one rank", name_of(options.strategy));
  ShardingOptions effective = options_on(context().device(), options);
  // Alone there is nothing to reduce: micro-batches are summed where they are.
  if (options.strategy == StrategyKind::single) effective.reduce_every_micro_batch = false;
  return std::make_unique<ShardedStrategy>(units, effective, seed, world);
}

}  // namespace tessera
