#include "tools/plan/plan.h"

#include <algorithm>
#include <vector>

#include "runtime/integer.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/figures.h"
#include "tools/plan/optimizer_groups.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

/// The configured strategy's bytes, a row per category.
std::string details(const PlannedStrategy& figures) {
  const Prediction& p = figures.prediction;
  const ByteUnit unit(p.total.most);
  constexpr const char* kRow = "  {:<14} {:>12} {:>12} {:>12} {:>18}\n";
  const std::string name = unit.name();
  std::string text = fmt::format(kRow, "per rank", "least " + name, "mean " + name, "most " + name,
                                 "most, in bytes");
  const auto add = [&](const char* label, const Spread& spread) {
    text += fmt::format(kRow, label, unit.text(spread.least), unit.text(spread.mean()),
                        unit.text(spread.most), spread.most);
  };
  add("parameters", p.parameters);
  add("gradients", p.gradients);
  add("optimizer", p.optimizer);
  add("slots", p.slots);
  add("total", p.total);
  if (p.on_host.most > 0) add("in host memory", p.on_host);
  add("sent per step", p.bytes_sent);
  if (figures.nccl_at_most > 0) {
    text += fmt::format("  NCCL's buffers: at most {:.0f} MiB more of a GPU (sharding.nccl_ctas)\n",
                        static_cast<double>(figures.nccl_at_most) / 0x1p20);
  }
  return text;
}

/// A dry run's memory at the peak of a step, a row per category.
std::string peak_table(const StepMemory& step, const std::string& where) {
  const ByteUnit unit(step.account.total.peak);
  constexpr const char* kRow = "  {:<14} {:>12} {:>18} {:>22}\n";
  std::string text = fmt::format("At the peak of a step, {}:\n{}:\n\n", step.moment, where);
  text += fmt::format(kRow, "", unit.name(), "in bytes", "largest in the step");
  const auto add = [&](std::string_view label, const MemoryAccount::Line& line) {
    text += fmt::format(kRow, label, unit.text(line.at_peak), line.at_peak, line.peak);
  };
  for (int i = 0; i < kCategories; ++i) {
    add(enum_names<Category>()[i], step.account.categories[i]);
  }
  add("total", step.account.total);
  return text;
}

/// "rank 0 on cpu, with 2 threads and 4 x 128 tokens in a micro-batch".
std::string place_of(const StepMemory& step, const ResolvedConfig& run, int rank, int ranks) {
  const DataConfig& data = run.config.data;
  return fmt::format(
      "rank {} on cpu, with {} thread{} and {} x {} tokens in a micro-batch", rank, step.threads,
      step.threads == 1 ? "" : "s",
      ceil_div(data.batch_size, data.accumulation_steps * batch_ranks(run.sharding, ranks)),
      data.sequence_length / run.sharding.context_parallel);
}

std::string text_of(const PlannedStrategy& row, const ByteUnit& unit) {
  std::string text = fmt::format("  {:<12}", fmt::format("{} {}", row.name, row.mesh));
  if (!row.problem.empty()) return fmt::format("{} {}\n", text, row.problem);
  const Prediction& p = row.prediction;
  for (const Spread* spread : {&p.parameters, &p.gradients, &p.optimizer, &p.slots, &p.total}) {
    text += fmt::format(" {:>8}", unit.text(spread->most));
  }
  const std::string peak = row.peak() > 0 ? unit.text(row.peak()) : "-";
  return fmt::format("{} {:>8} {:>8}\n", text, peak, unit.text(p.bytes_sent.most));
}

std::string crossings(const std::vector<PlannedStrategy>& rows, const ByteUnit& unit) {
  std::string text = fmt::format(
      "\nBytes that a rank sends to another node, mean per rank and step, in {}:\n"
      "directly (MPI, or sharding.deterministic), and in rings (NCCL's default).\n\n"
      "  {:<12} {:>11} {:>11}\n",
      unit.name(), "", "directly", "in rings");
  for (const PlannedStrategy& row : rows) {
    if (!row.problem.empty()) continue;
    const auto& leaves = row.prediction.leaves_node;
    text += fmt::format("  {:<12} {:>11} {:>11}\n", row.name,
                        leaves ? unit.text(leaves->direct) : "uneven",
                        leaves ? unit.text(leaves->rings) : "uneven");
  }
  return text;
}

std::string comparison(const PlanFigures& figures, const std::vector<PlannedStrategy>& rows) {
  std::int64_t most = 0;
  for (const PlannedStrategy& row : rows) {
    most = std::max({most, row.prediction.total.most, row.peak()});
  }
  const ByteUnit unit(most);
  std::string text = fmt::format(
      "Every strategy, the rank with the most, in {}:\n\n"
      "  {:<12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
      unit.name(), "", "param.", "grad.", "optim.", "slots", "total", "at peak", "sent");
  for (const PlannedStrategy& row : rows) text += text_of(row, unit);
  if (figures.options.nodes > 1) text += crossings(rows, unit);
  return text;
}

std::string heading(const PlanFigures& figures) {
  const ResolvedConfig& run = figures.run;
  const DataConfig& data = run.config.data;
  const int ranks = figures.options.ranks;
  std::string text =
      fmt::format("{} on {} rank{}", figures.figures.name, ranks, ranks == 1 ? "" : "s");
  if (figures.options.nodes > 1) text += fmt::format(", {} per node", figures.ranks_per_node());
  text += fmt::format("\n{} in {} units\n", describe_model(run), figures.model->units().size());
  text += fmt::format("computed in {}, {}, batch {} x {} in {} micro-batch{} per rank\n",
                      name_of(run.config.runtime.compute_dtype),
                      enum_name(run.config.optimizer.name), data.batch_size, data.sequence_length,
                      data.accumulation_steps, data.accumulation_steps == 1 ? "" : "es");
  if (const TrainConfig& train = run.config.train; !train.batch_ramp.empty()) {
    text += fmt::format("the batch grows from {} rows: {} steps have {} tokens\n",
                        train.batch_ramp.front().rows, train.steps,
                        batch_sizes(run.config).first_row(train.steps) * data.sequence_length);
  }
  text += "\n";
  const std::string problem = uneven_batch(run, ranks);
  if (!problem.empty()) text += fmt::format("tessera train would refuse it: {}\n\n", problem);
  return text;
}

std::string peak_of(const PlanFigures& figures) {
  const auto& step = figures.figures.step;
  const int rank = figures.figures.prediction.fullest_rank;
  std::string text = peak_table(*step, place_of(*step, figures.run, rank, figures.options.ranks));
  if (figures.figures.peak_at_most > 0) {
    text += fmt::format(
        "  All experts get equally many tokens there. With any others the peak is at most\n"
        "  {:.2f} MiB: all tokens of all ranks take this rank's experts.\n",
        static_cast<double>(figures.figures.peak_at_most) / 0x1p20);
  }
  return text + "\n";
}

/// "compute 62%, memory 10%, link of 8 ranks 28%".
std::string chain_of(const Timeline& timeline) {
  std::string text;
  for (const auto& [resource, seconds] : timeline.chain) {
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", resource,
                        100.0 * seconds / timeline.seconds);
  }
  return text;
}

/// "tensor 12.50 ms, data 2.10 ms": where computation waits for the ranks of an axis.
std::string axes_of(const Timeline& timeline) {
  std::string text;
  for (const auto& [axis, seconds] : timeline.exposed_by_axis) {
    text += fmt::format("{}{} {:.2f} ms", text.empty() ? "" : ", ", axis, 1e3 * seconds);
  }
  return text;
}

/// With cuts beyond data parallelism, or an update under the next pass: the exposed time by axis, and the bubble.
std::string cuts_of(const PlanFigures& figures) {
  if (!has_cuts(figures.plan.mesh) && !figures.run.config.runtime.overlap_update) return "";
  const Timeline& own = figures.figures.time->timeline;
  std::string text = fmt::format("  exposed by axis: {}\n", axes_of(own));
  if (figures.plan.pipeline.has_several()) {
    text += fmt::format("  bubble: {:.1f}% of the step, {:.2f} ms, mean over the stages\n",
                        100.0 * own.bubble / own.seconds, 1e3 * own.bubble);
  }
  return text;
}

/// The time of a step under every strategy.
std::string times(const PlanFigures& figures, const std::vector<PlannedStrategy>& rows) {
  const MachineRates& machine = *figures.options.machine;
  const Timeline& own = figures.figures.time->timeline;
  std::string text = fmt::format(
      "\nThe time of a step on {}.\nIts rates: {}.\n\n"
      "  {:<12} {:>11} {:>11} {:>11}  {}\n",
      machine.name, machine.source, "", "step ms", "exposed ms", "tokens/s", "limit");
  for (const PlannedStrategy& row : rows) {
    if (!row.time) continue;
    const Timeline& timeline = row.time->timeline;
    text += fmt::format("  {:<12} {:>11.2f} {:>11.2f} {:>11.0f}  {}\n", row.name,
                        1e3 * timeline.seconds, 1e3 * timeline.exposed, row.time->tokens_per_second,
                        timeline.limit());
  }
  text += fmt::format("\n  {}: {}\n", figures.figures.name, chain_of(own));
  text += cuts_of(figures);
  return text +
         "  exposed is the time for which computation waits for collectives. The limit\n"
         "  is the resource that the critical path uses most.\n";
}

constexpr const char* kNotIncluded =
    "\nThese bytes are exact. Not included:\n"
    "  evaluations, which keep nothing for backward\n"
    "  staging memory of MPI, and of ranks that are threads with a GPU each\n"
    "  on a GPU, memory of others: the CUDA context\n"
    "  the allocator's gaps between blocks, at most a sixteenth of the peak in most runs\n"
    "The peak is that of ranks on the CPU. On a GPU kernels have other workspaces.\n";

}  // namespace

std::string plan(const Config& config, const PlanOptions& options) {
  const PlanFigures figures = plan_figures(suited_to(config, options), options);
  std::string text = heading(figures);
  if (figures.run.config.sharding.strategy != config.sharding.strategy) {
    text += "The configured strategy single suits one rank: this page is of fsdp.\n\n";
  }
  text += fmt::format("{}\n", to_string(figures.plan));
  text += details(figures.figures);
  if (figures.expert_bytes > 0) {
    text += fmt::format(
        "  rows to experts and back: {:.2f} MiB more per rank and step if all experts get equally "
        "many tokens\n",
        static_cast<double>(figures.expert_bytes) / 0x1p20);
  }
  text += fmt::format("\n{}", groups_table(figures));
  text += fmt::format("\n{}", peak_of(figures));
  const std::vector<PlannedStrategy> rows = every_strategy(figures);
  text += comparison(figures, rows);
  text += kNotIncluded;
  if (figures.figures.time) text += times(figures, rows);
  if (options.partition) {
    for (const GroupPlan& group : figures.plan.groups) {
      text += fmt::format("\n{}", to_string(group.partition));
    }
  }
  return text;
}

}  // namespace tessera
