#include "sharding/strategy/strategy.h"

#include <algorithm>
#include <set>

#include "autograd/operations/shared_pieces.h"
#include "autograd/variable.h"
#include "runtime/capture.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/context_exchange.h"
#include "sharding/strategy/gradient_norm.h"
#include "sharding/strategy/matrix_exchange.h"

namespace tessera {
namespace {

using Phase = StepProtocol::Phase;
using MasterState = StepProtocol::Masters;

const Axes kStages = {"pipeline"};

bool offloads(const Plan& plan) {
  return std::ranges::any_of(
      plan.groups, [](const GroupPlan& group) { return group.placement.offload != Offload::none; });
}

/// Whether windows have numbers of 8 bits. A write of masters alone rounds them on the communication stream.
bool rounds(const Plan& plan) {
  return std::ranges::any_of(
      plan.groups, [](const GroupPlan& group) { return is_fp8(group.placement.window_dtype); });
}

}  // namespace

Strategy::Strategy(const Units& units, Plan plan, std::uint64_t seed, Communicator* world)
    : plan_(std::move(plan)),
      units_(units),
      world_(world),
      rank_(world == nullptr ? 0 : world->rank()),
      communicators_(plan_.mesh, world),
      uses_communication_stream_(plan_.communicates || plan_.elastic || offloads(plan_) ||
                                 rounds(plan_)) {
  share_out_experts();
  share_out_tensors();
  share_out_tokens();
  make_groups(seed);
  if (plan_.pipeline.has_several()) communicators_.along(kStages);
  masters_changed(Writes::masters);
  for (const auto& unit : units) unit->attach(this);
}

Strategy::~Strategy() {
  for (const auto& unit : units_) unit->attach(nullptr);
  for (const Parameter& parameter : parameters()) {
    parameter.share_out(nullptr);
    parameter.share_out(nullptr, parameter.stored_shape());
  }
}

void Strategy::share_out_experts() {
  for (const GroupPlan& group : plan_.groups) {
    if (group.expert_ranks() == 1) continue;
    if (expert_axis_ == nullptr) {
      const auto number = [&](int rank) {
        return plan_.mesh.group_along(rank, group.placement.experts);
      };
      expert_axis_ = std::make_shared<ExpertAxis>(world_->split(number), plan_.experts);
    }
    for (const BucketLayout& bucket : group.buckets()) {
      for (const Parameter& parameter : bucket.parameters) parameter.share_out(expert_axis_);
    }
  }
}

void Strategy::share_out_tensors() {
  if (plan_.sum_parts == 1) return;
  TensorRanks::Groups groups;
  if (plan_.mesh.has("tensor")) {
    const auto number = [&](int rank) { return plan_.mesh.group_along(rank, {"tensor"}); };
    groups.sums = &communicators_.split(*world_, number);
    if (plan_.row_exchange == RowExchange::by_rank) groups.rows = world_->split(number);
  }
  tensor_axis_ = std::make_shared<TensorRanks>(groups, plan_.sum_parts);
  std::set<std::int64_t> sharers;
  for (const GroupPlan& of : plan_.groups) {
    for (const BucketLayout& bucket : of.buckets()) {
      for (int p = 0; p < bucket.parameter_count(); ++p) {
        const Parameter& parameter = bucket.parameters[p];
        parameter.share_out(tensor_axis_, bucket.shapes[p]);
        if (parameter.cut().divided == Divided::outputs)
          sharers.insert(held_pieces_of(parameter).sharers);
      }
    }
  }
  sharers.erase(1);
  for (const std::int64_t count : sharers) {
    tensor_axis_->add_sharers(communicators_.split(*world_, [&](int rank) {
      const std::int64_t place = plan_.mesh.place(rank, "tensor");
      return static_cast<int>(plan_.mesh.group_along(rank, {"tensor"}) * tensor_axis_->ranks() +
                              place / count);
    }));
  }
}

void Strategy::share_out_tokens() {
  if (!plan_.cuts_rows()) return;
  ContextExchange::Groups groups;
  if (plan_.context_ranks > 1) {
    const auto number = [&](int rank) { return plan_.mesh.group_along(rank, {"context"}); };
    groups.keys = world_->split(number);
    groups.gradients = &communicators_.split(*world_, number);
  }
  const bool by_heads = plan_.key_exchange == KeyExchange::heads;
  context_axis_ = std::make_shared<ContextExchange>(plan_.token_cut(rank_), by_heads, groups);
}

void Strategy::make_groups(std::uint64_t seed) {
  check(
      world_ != nullptr || !plan_.communicates,
      "a strategy for several ranks needs a communicator, even of one rank; only single has none");
  for (const GroupPlan& group : plan_.groups) {
    if (!holds(group)) continue;
    for (const BucketLayout& bucket : group.buckets()) {
      for (const Parameter& parameter : bucket.parameters)
        shards_.push_back({.parameter = parameter, .unit = bucket.units.front()});
    }
  }
  std::span<Shard> rest = shards_;
  for (const GroupPlan& group : plan_.groups) {
    if (!holds(group)) {
      // All ranks split communicators off in one order.
      make_exchange(group, communicators_);
      make_reshard_exchange(group, communicators_);
      if (group.expert_ranks() > 1) communicators_.along(group.placement.experts);
      if (group.cut.tensors > 1) communicators_.along({"tensor"});
      continue;
    }
    const auto count = static_cast<std::size_t>(group.partition.parameter_count());
    groups_.push_back(std::make_unique<ParameterGroup>(plan_, group, rank_, rest.first(count),
                                                       communicators_, seed));
    rest = rest.subspan(count);
    for (int b = 0; b < group.bucket_count(); ++b) {
      const std::vector<int>& units = group.buckets()[b].units;
      for (const int unit : units) {
        buckets_of_[units_[unit].get()].push_back({.group = groups_.back().get(),
                                                   .bucket = b,
                                                   .first_unit = unit == units.front(),
                                                   .last_unit = unit == units.back()});
      }
    }
  }
}

Step Strategy::start_step() {
  check(protocol_.phase != Phase::micro_batches, "step {} has not ended; finish or drop it first",
        protocol_.step);
  check(protocol_.phase != Phase::complete,
        "step {} ended without update(); write the masters in step.update(), or call "
        "step.discard() to leave them as they are",
        protocol_.step);
  check_trained_set();
  ++protocol_.step;
  protocol_.phase = Phase::micro_batches;
  protocol_.finished = 0;
  if (expert_axis_ != nullptr) expert_axis_->start();
  if (tensor_axis_ != nullptr) tensor_axis_->start();
  for (const auto& group : groups_) group->start_step();
  return Step(*this);
}

void Strategy::check_trained_set() const {
  for (const GroupPlan& group : plan_.groups) {
    for (const BucketLayout& bucket : group.buckets()) {
      for (int p = 0; p < bucket.parameter_count(); ++p) {
        const Parameter& parameter = bucket.parameters[p];
        const bool planned = p < bucket.trained_count;
        check(parameter.trainable() == planned,
              "parameter '{}' was {} after the strategy was made; freeze parameters first, or make "
              "a new strategy",
              parameter.name(), planned ? "frozen" : "unfrozen");
      }
    }
  }
}

void Strategy::before_forward(Unit& unit) {
  check_masters(unit);
  const std::vector<UnitBucket>& buckets = buckets_of_[&unit];
  const bool trains = gradients_enabled() && protocol_.phase == Phase::micro_batches;
  for (const UnitBucket& here : buckets) {
    if (here.first_unit) here.group->before_forward(here.bucket, trains);
  }
  for (const UnitBucket& here : buckets) {
    if (here.first_unit) here.group->prefetch_forward();
  }
}

void Strategy::after_forward(Unit& unit) {
  for (const UnitBucket& here : buckets_of_[&unit]) {
    if (here.last_unit) here.group->after_forward(here.bucket, gradients_enabled());
  }
}

void Strategy::before_backward(Unit& unit) {
  check(protocol_.phase == Phase::micro_batches,
        "unit '{}' goes backward outside the micro-batches of a step (steps so far: {}); call "
        "start_step() before forward",
        unit.name(), protocol_.step);
  for (const UnitBucket& here : buckets_of_[&unit]) here.group->before_backward(here.bucket);
}

void Strategy::after_backward(Unit& unit) {
  for (const UnitBucket& here : buckets_of_[&unit]) {
    if (here.first_unit) here.group->after_backward(here.bucket);
  }
}

void Strategy::check_masters(const Unit& unit) const {
  check(protocol_.masters != MasterState::being_written,
        "unit '{}' runs while the masters are being written; leave write_masters() or update() "
        "first",
        unit.name());
  check(protocol_.masters != MasterState::torn,
        "unit '{}' runs after a write of the masters failed half-way; load them again in "
        "write_masters()",
        unit.name());
}

void Strategy::finish_micro_batch(int chunk) {
  wait_for_last_update();  // buckets that backward did not reach get gradients of zero
  for (const auto& group : groups_) {
    if (plan_.pipeline.chunk_of(group->plan().stage) == chunk) group->finish_micro_batch();
  }
  const bool last = protocol_.finished + 1 == plan_.passes();
  if (last && uses_communication_stream_) wait_for_communication(communication_stream().record());
}

void Strategy::end_step() {
  protocol_.phase = Phase::between_steps;
  if (plan_.communicates) world_->next_step(communication_stream());
}

void Strategy::write_masters(const std::function<void()>& write_them) {
  check(protocol_.phase == Phase::between_steps,
        "step {} is under way; write the masters in step.update(), or call step.discard() first",
        protocol_.step);
  write(write_them, Writes::masters);
}

void Strategy::write(const std::function<void()>& write_them, Writes writes) {
  check(protocol_.masters != MasterState::being_written, "the masters are being written already");
  wait_for_last_update();
  if (uses_communication_stream_) wait_for_communication(communication_stream().record());
  // The host may write offloaded masters.
  if (offloads(plan_)) communication_stream().synchronize();
  protocol_.masters = MasterState::being_written;
  at_every_write_();
  try {
    write_them();
  } catch (...) {
    protocol_.masters = MasterState::torn;
    throw;
  }
  protocol_.masters = MasterState::current;
  masters_changed(writes);
}

void Strategy::masters_changed(Writes writes) {
  for (const auto& group : groups_) group->masters_changed(writes);
  prefetch_first();
}

void Strategy::write_by_unit(const std::function<void(int unit)>& write) {
  check(
      !offloads(plan_) && !is_capturing(),
      "neither an update of offloaded masters nor one of a graph runs under the next forward pass; "
      "set runtime.overlap_update=false");
  if (uses_communication_stream_) wait_for_communication(communication_stream().record());
  at_every_write_();
  const Stream& stream = update_stream();
  stream.wait(context().compute_stream().record());
  for (int unit = 0; unit < std::ssize(units_); ++unit) {
    const std::vector<UnitBucket>& buckets = buckets_of_[units_[unit].get()];
    if (buckets.empty()) continue;
    stream.enqueue([write, unit] { write(unit); });
    for (const UnitBucket& here : buckets) {
      if (here.first_unit) here.group->update_queued(here.bucket);
    }
  }
  updated_ = stream.record();
  prefetch_first();
}

void Strategy::wait_for_last_update() const {
  wait_for_update(updated_);
}

const std::vector<Shard>& Strategy::shards() const {
  wait_for_last_update();
  return shards_;
}

void Strategy::prefetch_first() {
  if (is_capturing()) return;  // every launch begins with its own gathers
  for (const auto& group : groups_) group->prefetch_first();
}

GradientNorm Strategy::gradient_norm() {
  Tensors gradients;
  // Tensor ranks have the same gradients of parameters that they hold whole.
  const bool divided_only = plan_.mesh.place(rank_, "tensor") > 0;
  for (const auto& group : groups_) {
    if (!plan_.counts_in_norm(group->plan(), rank_)) continue;
    for (const Tensor& gradient : group->gradients(divided_only)) gradients.push_back(gradient);
  }
  const bool alone = plan_.norm_axes.empty();
  return tessera::gradient_norm(gradients,
                                alone ? nullptr : &communicators_.along(plan_.norm_axes));
}

std::vector<Parameter> Strategy::parameters() const {
  std::vector<Parameter> all;
  for (const GroupPlan& group : plan_.groups) {
    for (const BucketLayout& bucket : group.buckets()) {
      all.insert(all.end(), bucket.parameters.begin(), bucket.parameters.end());
    }
  }
  return all;
}

std::vector<ElementRange> Strategy::saved_elements() const {
  std::vector<ElementRange> saved;
  for (const GroupPlan& group : plan_.groups) {
    if (!holds(group)) continue;
    const int replica = plan_.mesh.position_along(rank_, group.placement.replicate);
    const int tensors = group.cut.tensors, tensor = plan_.mesh.place(rank_, "tensor");
    for (int i = 0; i < group.partition.parameter_count(); ++i) {
      const Shard& shard = shards_[saved.size()];
      const bool divided = is_divided(shard.parameter, group.cut);
      saved.push_back(
          divided ? share_of(shard.count(), replica, group.replicas)
                  : share_of(shard.count(), replica * tensors + tensor, group.replicas * tensors));
    }
  }
  return saved;
}

void Strategy::visit_whole(const Visit& visit, const Includes& includes) {
  wait_for_last_update();
  auto own = groups_.begin();
  for (const GroupPlan& group : plan_.groups) {
    const auto visit_on_all_stages = [&](const Parameter& parameter, const Tensor& whole) {
      if (plan_.pipeline.has_several()) {
        communication_stream().wait(context().compute_stream().record());
        wait_for_communication(communicators_.along(kStages).broadcast(
            {whole}, plan_.pipeline.rank_of(group.stage), communication_stream(), "parameters"));
      }
      visit(parameter, whole);
    };
    if (holds(group)) {
      (*own++)->visit_whole(visit_on_all_stages, includes);
      continue;
    }
    for (const BucketLayout& bucket : group.buckets()) {
      for (const Parameter& parameter : bucket.parameters) {
        if (!includes(parameter)) continue;
        visit_on_all_stages(parameter, Tensor::empty(parameter.shape(), DType::f32));
      }
    }
  }
  // The caller completes its file only if the values are those of a healthy run.
  if (world_ != nullptr) world_->raise_if_aborted();
}

std::unique_ptr<MatrixExchange> Strategy::make_matrix_exchange(const Includes& includes) {
  return tessera::make_matrix_exchange(plan_, rank_, communicators_, includes);
}

std::int64_t Strategy::expert_bytes_sent() const {
  return expert_axis_ == nullptr ? 0 : expert_axis_->bytes_sent();
}

std::unique_ptr<Strategy> make_strategy(const Units& units, const ShardingOptions& options,
                                        std::uint64_t seed, Communicator* world) {
  const Machine machine = {.ranks = world == nullptr ? 1 : world->size(),
                           .ranks_per_node = world == nullptr ? 0 : world->ranks_per_node(),
                           .device = context().device()};
  check(world != nullptr || options.strategy == StrategyKind::single,
        "strategy {} needs a communicator, even of one rank", name_of(options.strategy));
  return std::make_unique<Strategy>(units, make_plan(units, options, machine), seed, world);
}

}  // namespace tessera
