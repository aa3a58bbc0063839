#include "tools/plan/dry_run.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/context.h"
#include "runtime/integer.h"
#include "sharding/comm/dry/dry.h"
#include "tools/config/kernel_options.h"
#include "tools/plan/unit_work.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

/// Stands between the units and the strategy and notes which of them ran when the peak was reached.
class PeakWatch final : public UnitHooks {
 public:
  PeakWatch(LanguageModel& model, UnitHooks& strategy, const HeadRuns& heads)
      : strategy_(strategy), heads_(heads) {
    for (const auto& unit : model.units()) unit->attach(this);
  }

  void start() {
    context().allocator().reset_peaks();
    seen_ = context().allocator().account().total.peak;
    moment_ = now_ = "start of the step";
  }
  /// The moment of the peak since start().
  std::string moment() {
    enter({});
    return moment_;
  }

  void before_forward(Unit& unit) override {
    enter("forward of " + (heads_.next_is_head(unit) ? "the head" : unit.name()));
    strategy_.before_forward(unit);
  }
  void after_forward(Unit& unit) override { strategy_.after_forward(unit); }
  void before_backward(Unit& unit) override {
    enter("backward of " + unit.name());
    strategy_.before_backward(unit);
  }
  void after_backward(Unit& unit) override {
    strategy_.after_backward(unit);
    enter("end of backward of " + unit.name());
  }

 private:
  void enter(std::string next) {
    const std::int64_t peak = context().allocator().account().total.peak;
    if (peak > seen_) moment_ = now_;
    seen_ = peak;
    now_ = std::move(next);
  }

  UnitHooks& strategy_;
  HeadRuns heads_;
  std::int64_t seen_ = 0;
  std::string now_, moment_;
};

/// Batches in the tensors that a TokenLoader fills.
BatchSource blank_batches(const ResolvedConfig& run) {
  const std::int64_t length = run.config.data.sequence_length;
  const Objective objective = run.config.train.objective;
  const bool documents = masks_documents(run), pairs = compares_pairs(objective);
  const std::int64_t each = objective == Objective::distill ? 1 + run.config.distill.top_k : 0;
  return {[=](std::int64_t, std::int64_t, std::int64_t rows) {
            const Shape shape{rows, length};
            const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * length));
            Batch batch{Tensor::from(ids, shape), Tensor::from(ids, shape)};
            if (documents) batch.document_starts = Tensor::empty_on_host(shape, DType::i32);
            if (pairs) batch.reference = Tensor::empty(shape, DType::f32);
            if (each > 0) {
              const Shape of_each{rows, length, each};
              batch.soft = {Tensor::empty(of_each, DType::i32), Tensor::empty(of_each, DType::f32)};
            }
            return batch;
          },
          [length](std::int64_t, std::int64_t, std::int64_t rows) { return rows * length; }};
}

std::vector<int> nodes_of(const DryRank& rank) {
  std::vector<int> nodes;
  for (int r = 0; r < rank.ranks; ++r) {
    nodes.push_back(rank.ranks_per_node > 0 ? r / rank.ranks_per_node : 0);
  }
  return nodes;
}

}  // namespace

ResolvedConfig shortened(const ResolvedConfig& run, int ranks, std::int64_t micro_batches) {
  ResolvedConfig shorter = run;
  DataConfig& data = shorter.config.data;
  const int sharing = batch_ranks(run.sharding, ranks);
  const std::int64_t rows = ceil_div(data.batch_size, data.accumulation_steps * sharing);
  if (shape_of(run.model).experts.layers == 0 && run.config.train.elastic == 0) {
    data.accumulation_steps = std::min(data.accumulation_steps, micro_batches);
  }
  data.batch_size = rows * data.accumulation_steps * sharing;
  shorter.sharding.micro_batches = static_cast<int>(data.accumulation_steps);
  describe_to_sharding(shorter);
  return shorter;
}

StepMemory dry_run(const ResolvedConfig& run, const DryRank& rank, AssumedLoad::Kind load) {
  RankContext context({.device = rank.device,
                       .rank = rank.rank,
                       .world_size = rank.ranks,
                       .threads = rank.threads,
                       .dry = true});
  const ContextGuard guard(context);
  choose_kernels(run.config);
  const bool in_turn = load == AssumedLoad::Kind::even && run.config.moe.force_balance;
  context.state<AssumedLoad>().kind = in_turn ? AssumedLoad::Kind::in_turn : load;
  const auto world = make_dry_communicator(rank.rank, nodes_of(rank));
  TrainingSession session(run, *world);
  const DataConfig& data = run.config.data;
  const HeadRuns heads(session.strategy().plan(), rank.rank);
  UnitWork work(session.model(), session.strategy(), session.strategy().plan(), rank.rank,
                session.rows_per_micro_batch(), data.sequence_length);
  PeakWatch watch(session.model(), work, heads);
  const BatchSource batches = blank_batches(run);
  session.step(1, batches);  // some memory is allocated at its first use
  const std::int64_t sent_before = world->bytes_sent();
  watch.start();
  context.allocator().record_history(true);
  StreamLog& log = *context.stream_log();
  log.start();
  context.state<GroupCalls>().clear();
  // A watched one, if there are such.
  const std::int64_t step = std::max<std::int64_t>(2, run.config.train.watch);
  session.step(step, batches);
  StepMemory memory = {.account = context.allocator().account(),
                       .moment = watch.moment(),
                       .history = context.allocator().history(),
                       .bytes_sent = world->bytes_sent() - sent_before,
                       .log = log,
                       .calls = context.state<GroupCalls>(),
                       .log_of_two = {},
                       .calls_of_two = {},
                       .threads = context.threads().size()};
  if (run.config.runtime.overlap_update && run.config.train.watch == 0) {
    session.step(step + 1, batches);
    memory.log_of_two = log;
    memory.calls_of_two = context.state<GroupCalls>();
  }
  return memory;
}

}  // namespace tessera
