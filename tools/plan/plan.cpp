#include "tools/plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/check.h"
#include "runtime/integer.h"
#include "runtime/threads.h"
#include "sharding/plan/footprint.h"
#include "sharding/plan/plan.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/prediction.h"
#include "tools/train/lengths.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

int ranks_per_node(const PlanOptions& options) {
  return options.nodes > 1 ? options.ranks / options.nodes : 0;
}

/// GPUs: on a CPU offloading would change nothing.
Machine machine_of(const PlanOptions& options) {
  return {.ranks = options.ranks, .ranks_per_node = ranks_per_node(options)};
}

/// One unit for all bytes of a table.
class Unit {
 public:
  explicit Unit(std::int64_t most) : is_gibi_(most >= std::int64_t{64} << 30) {}

  const char* name() const { return is_gibi_ ? "GiB" : "MiB"; }
  std::string text(double bytes) const {
    return fmt::format("{:.2f}", bytes / (is_gibi_ ? 0x1p30 : 0x1p20));
  }

 private:
  bool is_gibi_;
};

/// The configured strategy's bytes, a row per category.
std::string details(const Prediction& p) {
  const Unit unit(p.total.most);
  constexpr const char* kRow = "  {:<14} {:>12} {:>12} {:>12} {:>18}\n";
  const std::string name = unit.name();
  std::string text = fmt::format(kRow, "per rank", "least " + name, "mean " + name, "most " + name,
                                 "most, in bytes");
  const auto add = [&](const char* label, const Spread& spread) {
    text += fmt::format(kRow, label, unit.text(static_cast<double>(spread.least)),
                        unit.text(spread.mean()), unit.text(static_cast<double>(spread.most)),
                        spread.most);
  };
  add("parameters", p.parameters);
  add("gradients", p.gradients);
  add("optimizer", p.optimizer);
  add("slots", p.slots);
  add("total", p.total);
  if (p.on_host.most > 0) add("in host memory", p.on_host);
  add("sent per step", p.bytes_sent);
  return text;
}

/// A dry run's memory at the peak of a step, a row per category.
std::string peak_table(const StepMemory& step, const std::string& where) {
  const Unit unit(step.account.total.peak);
  constexpr const char* kRow = "  {:<14} {:>12} {:>18} {:>22}\n";
  std::string text = fmt::format("At the peak of a step, {}:\n{}:\n\n", step.moment, where);
  text += fmt::format(kRow, "", unit.name(), "in bytes", "largest in the step");
  const auto add = [&](std::string_view label, const MemoryAccount::Line& line) {
    text += fmt::format(kRow, label, unit.text(static_cast<double>(line.at_peak)), line.at_peak,
                        line.peak);
  };
  for (int i = 0; i < kCategories; ++i) {
    add(enum_names<Category>()[i], step.account.categories[i]);
  }
  add("total", step.account.total);
  return text;
}

/// The dry run of a plan's fullest rank, on the CPU. No value with offloading, which ranks on the
/// CPU do not do.
std::optional<StepMemory> step_of(const ResolvedConfig& run, const Plan& plan, int rank,
                                  const PlanOptions& options) {
  const auto offloads = [](const GroupPlan& group) {
    return group.placement.offload != Offload::none;
  };
  if (std::any_of(plan.groups.begin(), plan.groups.end(), offloads)) return {};
  if (run.sharding.expert_parallel > 1) return {};  // the other ranks' rows are not known
  const int on_a_node = options.ranks / options.nodes;
  const int threads = static_cast<int>(run.config.runtime.threads);
  return dry_run(shortened(run, options.ranks),
                 {.rank = rank,
                  .ranks = options.ranks,
                  .ranks_per_node = ranks_per_node(options),
                  .threads = threads > 0 ? threads : std::max(1, available_threads() / on_a_node)});
}

/// "rank 0 on cpu, with 2 threads and 4 x 128 tokens in a micro-batch".
std::string place_of(const StepMemory& step, const ResolvedConfig& run, int rank, int ranks) {
  const DataConfig& data = run.config.data;
  return fmt::format("rank {} on cpu, with {} thread{} and {} x {} tokens in a micro-batch", rank,
                     step.threads, step.threads == 1 ? "" : "s",
                     ceil_div(data.batch_size, data.accumulation_steps * ranks),
                     data.sequence_length);
}

/// The traffic of rows on their way to experts on other ranks; empty if they have none.
std::string rows_of_experts(const LanguageModel& model, const ResolvedConfig& run, int ranks) {
  if (run.sharding.expert_parallel == 1) return "";
  const TransformerShape& shape = model.shape();
  const DataConfig& data = run.config.data;
  std::int64_t block = 0, recomputed = 0;
  for (const auto& unit : model.units()) {
    const std::vector<Parameter>& parameters = unit->parameters();
    const bool has_experts = std::any_of(parameters.begin(), parameters.end(),
                                         [](const Parameter& p) { return p.stacked(); });
    const bool is_block = unit != model.units().front() && unit != model.units().back();
    const bool again = run.config.sharding.activation_checkpointing.recomputes(block);
    if (has_experts && again) ++recomputed;
    if (is_block) ++block;
  }
  const ExpertTraffic traffic =
      expert_traffic(shape, run.sharding.expert_parallel, run.sharding.compute_dtype);
  const std::int64_t tokens = tokens_per_step(data) / (data.accumulation_steps * ranks);
  const std::int64_t bytes =
      balanced_bytes(traffic, shape, tokens, data.accumulation_steps, recomputed);
  return fmt::format(
      "  rows to experts and back: {:.2f} MiB more per rank and step if all experts get equally "
      "many "
      "tokens\n",
      static_cast<double>(bytes) / 0x1p20);
}

/// A row of the table of strategies.
struct Row {
  std::string name;
  /// The mesh of hsdp: "16 x 8" replicas x shards.
  std::string mesh;
  Prediction prediction;
  /// Bytes at the peak of a step on the fullest rank.
  std::int64_t peak = 0;
  /// Instead of a prediction, if the strategy does not suit the ranks.
  std::string problem;
};

Row row_of(const Units& units, const ResolvedConfig& base, const std::string& name,
           const PlanOptions& options) {
  Row row{.name = name};
  try {
    ResolvedConfig run = base;
    run.config = variant_of(base.config, name);
    run.sharding = sharding_options(run.config);
    run.sharding.counters = base.sharding.counters;
    const Plan plan = make_plan(units, run.sharding, machine_of(options));
    const int replicas = plan.mesh.size_along({"replica"}),
              shards = plan.mesh.size_along({"shard"});
    if (replicas > 1 && shards > 1) row.mesh = fmt::format("{} x {}", replicas, shards);
    row.prediction =
        predict(plan, ranks_per_node(options), optimizer_bytes_per_element(run.config.optimizer));
    if (const auto step = step_of(run, plan, row.prediction.fullest_rank, options)) {
      row.peak = step->account.total.peak;
    }
  } catch (const Error& error) {
    row.problem = error.what();
  }
  return row;
}

std::string text_of(const Row& row, const Unit& unit) {
  std::string text = fmt::format("  {:<12}", fmt::format("{} {}", row.name, row.mesh));
  if (!row.problem.empty()) return fmt::format("{} {}\n", text, row.problem);
  const Prediction& p = row.prediction;
  for (const Spread* spread : {&p.parameters, &p.gradients, &p.optimizer, &p.slots, &p.total}) {
    text += fmt::format(" {:>8}", unit.text(static_cast<double>(spread->most)));
  }
  const std::string peak = row.peak > 0 ? unit.text(static_cast<double>(row.peak)) : "-";
  return fmt::format("{} {:>8} {:>8}\n", text, peak,
                     unit.text(static_cast<double>(p.bytes_sent.most)));
}

std::string crossings(const std::vector<Row>& rows, const Unit& unit) {
  std::string text = fmt::format(
      "\nBytes that a rank sends to another node, mean per rank and step, in {}:\n"
      "directly (MPI, or sharding.deterministic), and in rings (NCCL's default).\n\n"
      "  {:<12} {:>11} {:>11}\n",
      unit.name(), "", "directly", "in rings");
  for (const Row& row : rows) {
    if (!row.problem.empty()) continue;
    const auto& leaves = row.prediction.leaves_node;
    text += fmt::format("  {:<12} {:>11} {:>11}\n", row.name,
                        leaves ? unit.text(leaves->direct) : "uneven",
                        leaves ? unit.text(leaves->rings) : "uneven");
  }
  return text;
}

std::string comparison(const Units& units, const ResolvedConfig& run, const PlanOptions& options) {
  std::vector<Row> rows;
  std::int64_t most = 0;
  for (const std::string& name : strategy_variants()) {
    rows.push_back(row_of(units, run, name, options));
    most = std::max({most, rows.back().prediction.total.most, rows.back().peak});
  }
  const Unit unit(most);
  std::string text = fmt::format(
      "Every strategy, the rank with the most, in {}:\n\n"
      "  {:<12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
      unit.name(), "", "param.", "grad.", "optim.", "slots", "total", "at peak", "sent");
  for (const Row& row : rows) text += text_of(row, unit);
  if (options.nodes > 1) text += crossings(rows, unit);
  return text;
}

std::string heading(const ResolvedConfig& run, const PlanOptions& options, std::size_t units) {
  const DataConfig& data = run.config.data;
  std::string text = fmt::format("{} on {} rank{}", variant_name(run.sharding), options.ranks,
                                 options.ranks == 1 ? "" : "s");
  if (options.nodes > 1) text += fmt::format(", {} per node", ranks_per_node(options));
  text += fmt::format("\n{} in {} units\n", describe_model(run), units);
  text += fmt::format("computed in {}, {}, batch {} x {} in {} micro-batch{} per rank\n\n",
                      name_of(run.sharding.compute_dtype), enum_name(run.config.optimizer.name),
                      data.batch_size, data.sequence_length, data.accumulation_steps,
                      data.accumulation_steps == 1 ? "" : "es");
  const std::string problem = uneven_batch(run, options.ranks);
  if (!problem.empty()) text += fmt::format("tessera train would refuse it: {}\n\n", problem);
  return text;
}

constexpr const char* kNotIncluded =
    "\nThese bytes are exact. Not included:\n"
    "  evaluations, which keep nothing for backward\n"
    "  staging memory of MPI, and of ranks that are threads with a GPU each\n"
    "  on a GPU, memory of others: the CUDA context, NCCL's buffers (they grow with\n"
    "  the ranks)\n"
    "  the allocator's rounding of blocks up to its size classes\n"
    "The peak is that of ranks on the CPU. On a GPU kernels have other workspaces.\n";

}  // namespace

std::string plan(const Config& config, const PlanOptions& given) {
  PlanOptions options = given;
  if (options.ranks == 0) options.ranks = std::max(1, static_cast<int>(config.runtime.ranks));
  check(options.nodes >= 1 && options.ranks % options.nodes == 0,
        "{} ranks cannot be spread evenly over {} nodes", options.ranks, options.nodes);
  const ResolvedConfig run =
      on_ranks(resolve(with_batch_size(config, options.ranks)), options.ranks);
  check_sharding(run, options.ranks);
  check_model_keys(run);
  const std::unique_ptr<LanguageModel> model = make_model(run);
  const Units& units = model->units();
  const Plan sharded = make_plan(units, run.sharding, machine_of(options));

  std::string text = heading(run, options, units.size());
  text += fmt::format("{}\n", to_string(sharded));
  const Prediction prediction =
      predict(sharded, ranks_per_node(options), optimizer_bytes_per_element(run.config.optimizer));
  text += details(prediction);
  text += rows_of_experts(*model, run, options.ranks) + "\n";
  const int rank = prediction.fullest_rank;
  if (const auto step = step_of(run, sharded, rank, options)) {
    text += fmt::format("{}\n", peak_table(*step, place_of(*step, run, rank, options.ranks)));
  } else {
    text += run.sharding.expert_parallel > 1
                ? "The peak of a step is not predicted with expert_parallel: it depends on the "
                  "rows that "
                  "other ranks send.\n\n"
                : "The peak of a step is not predicted with offloading, which needs a GPU.\n\n";
  }
  text += comparison(units, run, options);
  text += kNotIncluded;
  if (options.partition) {
    for (const GroupPlan& group : sharded.groups) {
      text += fmt::format("\n{}", to_string(group.partition));
    }
  }
  return text;
}

}  // namespace tessera
