// Plans of one configuration on several numbers of ranks, in tables.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "runtime/check.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/byte_unit.h"
#include "tools/plan/figures.h"
#include "tools/plan/plan.h"
#include "tools/train/resolve_ranks.h"

namespace tessera {
namespace {

constexpr int kMostRanks = 1 << 20;

int rank_count(std::string_view text, const std::string& all) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check(error == std::errc() && end == text.data() + text.size() && number >= 1 &&
            number <= kMostRanks,
        "--ranks {}: expected numbers from 1 to {}, such as 1,2,4 or 8-64, which is 8,16,32,64",
        all, kMostRanks);
  return number;
}

std::string row_of(const PlanLine& line, const ByteUnit& unit) {
  const PlannedStrategy& figures = line.figures->figures;
  const Prediction& p = figures.prediction;
  std::string text = fmt::format("  {:>8}", line.ranks);
  for (const Spread* spread : {&p.parameters, &p.gradients, &p.optimizer, &p.slots, &p.total}) {
    text += fmt::format(" {:>8}", unit.text(spread->most));
  }
  text += fmt::format(" {:>8}", figures.peak() > 0 ? unit.text(figures.peak()) : "-");
  text += fmt::format(" {:>8}", unit.text(p.bytes_sent.most));
  if (line.figures->options.nodes == 1) return text;
  const auto& leaves = p.leaves_node;
  return text + fmt::format(" {:>9} {:>9}", leaves ? unit.text(leaves->direct) : "uneven",
                            leaves ? unit.text(leaves->rings) : "uneven");
}

/// The configured strategy, a row for each number of ranks.
std::string own_table(const std::vector<PlanLine>& lines, const ByteUnit& unit, int nodes) {
  std::string text = fmt::format("The rank with the most, in {}:\n\n", unit.name()) +
                     fmt::format("  {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", "ranks",
                                 "param.", "grad.", "optim.", "slots", "total", "at peak", "sent");
  if (nodes > 1) text += fmt::format(" {:>9} {:>9}", "directly", "in rings");
  text += "\n";
  for (const PlanLine& line : lines) {
    text += line.figures ? row_of(line, unit) : fmt::format("  {:>8} {}", line.ranks, line.problem);
    text += "\n";
  }
  if (nodes > 1) {
    text +=
        "\nThe last two columns are the mean bytes that a rank sends to another node: directly\n"
        "(MPI, or sharding.deterministic), and in rings (NCCL's default).\n";
  }
  return text;
}

/// A row for each number of ranks, and in it the text of `cell` for each strategy.
template <typename Cell>
std::string table_by_strategy(const std::vector<PlanLine>& lines, const std::string& title,
                              const Cell& cell) {
  std::string text = fmt::format("\n{}:\n\n  {:>8}", title, "ranks");
  for (const std::string& name : strategy_variants()) text += fmt::format(" {:>9}", name);
  text += "\n";
  for (const PlanLine& line : lines) {
    if (!line.figures) continue;
    text += fmt::format("  {:>8}", line.ranks);
    for (const PlannedStrategy& one : line.strategies) text += fmt::format(" {:>9}", cell(one));
    text += "\n";
  }
  return text;
}

std::string peak_table(const std::vector<PlanLine>& lines, const ByteUnit& unit) {
  const std::string title = fmt::format("At the peak of a step, by strategy, in {}", unit.name());
  return table_by_strategy(lines, title, [&](const PlannedStrategy& one) {
    return one.peak() > 0 ? unit.text(one.peak()) : "-";
  });
}

std::string time_table(const std::vector<PlanLine>& lines, const MachineRates& machine) {
  const std::string title =
      fmt::format("The time of a step on {}, by strategy, in ms", machine.name);
  return table_by_strategy(lines, title, [](const PlannedStrategy& one) {
    return one.time ? fmt::format("{:.2f}", 1e3 * one.time->timeline.seconds) : "-";
  });
}

/// The batches that do not divide among the ranks.
std::string uneven_batches(const std::vector<PlanLine>& lines) {
  std::string text;
  for (const PlanLine& line : lines) {
    const std::string problem = line.figures ? uneven_batch(line.figures->run, line.ranks) : "";
    if (!problem.empty()) text += fmt::format("\ntessera train would refuse it: {}\n", problem);
  }
  return text;
}

}  // namespace

std::vector<int> parse_rank_counts(const std::string& text) {
  std::vector<int> counts;
  std::string_view left = text;
  for (;;) {
    const std::string_view item = left.substr(0, left.find(','));
    const std::size_t dash = item.find('-');
    const int first = rank_count(item.substr(0, dash), text);
    const int last = dash == item.npos ? first : rank_count(item.substr(dash + 1), text);
    check(first <= last, "--ranks {}: a range begins with its smaller number", text);
    for (int count = first; count <= last; count *= 2) counts.push_back(count);
    if (item.size() == left.size()) return counts;
    left.remove_prefix(item.size() + 1);
  }
}

std::string plan_sweep(const Config& config, const std::vector<int>& ranks,
                       const PlanOptions& options) {
  const std::vector<PlanLine> lines = plan_lines(config, ranks, options);
  std::int64_t most = 0;
  for (const PlanLine& line : lines) {
    if (!line.figures) continue;
    for (const PlannedStrategy& one : line.strategies) most = std::max(most, one.peak());
    most = std::max(most, line.figures->figures.prediction.total.most);
  }
  const ByteUnit unit(most);
  const PlanFigures& first = first_figures(lines);
  const ResolvedConfig& run = first.run;
  const DataConfig& data = run.config.data;
  std::string text = fmt::format(
      "{}, {}\ncomputed in {}, {}, {} x {} tokens a step\n\n", first.figures.name,
      describe_model(run), name_of(run.sharding.compute_dtype),
      enum_name(run.config.optimizer.name),
      config.data.rows_per_rank > 0 ? fmt::format("{} per rank", config.data.rows_per_rank)
                                    : fmt::format("{}", data.batch_size),
      data.sequence_length);
  const bool single = config.sharding.strategy == StrategyKind::single;
  if (single && std::any_of(ranks.begin(), ranks.end(), [](int count) { return count > 1; })) {
    text += "The configured strategy single suits one rank: the rows of more are of fsdp.\n\n";
  }
  text += own_table(lines, unit, options.nodes) + peak_table(lines, unit);
  if (options.machine) text += time_table(lines, *options.machine);
  return text + uneven_batches(lines) +
         "\n`tessera plan` of one number of ranks explains the columns and what is not included.\n";
}

}  // namespace tessera
