#include "tools/plan/plan.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/check.h"
#include "sharding/plan/footprint.h"
#include "sharding/plan/plan.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/prediction.h"
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
  explicit Unit(std::int64_t most) : is_gibi_(most >= std::int64_t{100} << 30) {}

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

/// A row of the table of strategies.
struct Row {
  std::string name;
  /// The mesh of hsdp: "16 x 8" replicas x shards.
  std::string mesh;
  Prediction prediction;
  /// Instead of a prediction, if the strategy does not suit the ranks.
  std::string problem;
};

Row row_of(const Units& units, const Config& config, const std::string& name,
           const PlanOptions& options, std::int64_t counters) {
  Row row{.name = name};
  try {
    ShardingOptions sharding = sharding_options(config);
    sharding.counters = counters;
    const Plan plan = make_plan(units, sharding, machine_of(options));
    const int replicas = plan.mesh.size_along({"replica"}),
              shards = plan.mesh.size_along({"shard"});
    if (replicas > 1 && shards > 1) row.mesh = fmt::format("{} x {}", replicas, shards);
    row.prediction =
        predict(plan, ranks_per_node(options), optimizer_bytes_per_element(config.optimizer));
  } catch (const Error& error) {
    row.problem = error.what();
  }
  return row;
}

std::string text_of(const Row& row, const Unit& unit, bool several_nodes) {
  std::string text = fmt::format("  {:<10} {:>9}", row.name, row.mesh);
  if (!row.problem.empty()) return fmt::format("{} {}\n", text, row.problem);
  const Prediction& p = row.prediction;
  for (const Spread* spread :
       {&p.parameters, &p.gradients, &p.optimizer, &p.slots, &p.total, &p.bytes_sent}) {
    text += fmt::format(" {:>11}", unit.text(static_cast<double>(spread->most)));
  }
  if (!several_nodes) return text + "\n";
  const auto& leaves = p.leaves_node;
  return text + fmt::format(" {:>11} {:>11}\n", leaves ? unit.text(leaves->direct) : "uneven",
                            leaves ? unit.text(leaves->rings) : "uneven");
}

std::string comparison(const Units& units, const ResolvedConfig& run, const PlanOptions& options) {
  std::vector<Row> rows;
  std::int64_t most = 0;
  for (const std::string& name : strategy_variants()) {
    rows.push_back(
        row_of(units, variant_of(run.config, name), name, options, run.sharding.counters));
    most = std::max(most, rows.back().prediction.total.most);
  }
  const Unit unit(most);
  const bool several_nodes = options.nodes > 1;
  std::string text = fmt::format(
      "Every strategy, the rank with the most, in {}:\n\n"
      "  {:<10} {:>9} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}",
      unit.name(), "", "mesh", "parameters", "gradients", "optimizer", "slots", "total",
      "sent/step");
  text += several_nodes ? fmt::format(" {:>11} {:>11}\n", "leaves node", "(in rings)") : "\n";
  for (const Row& row : rows) text += text_of(row, unit, several_nodes);
  if (several_nodes) {
    text +=
        "\n'leaves node' is the mean per rank and step of the bytes that a rank sends to another "
        "node: with direct\n"
        "sends (MPI, or sharding.deterministic), and in parentheses in rings (NCCL's default).\n";
  }
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
    "  activations, which depend on the batch, the sequence and sharding.activation_checkpointing\n"
    "  workspaces of kernels, and on a GPU 32 MiB of cuBLASLt's per stream and 32 MiB for staging\n"
    "  on a GPU, memory of others: the CUDA context, NCCL's buffers (they grow with the ranks)\n"
    "  the allocator's rounding of blocks up to its size classes\n";

}  // namespace

std::string plan(const Config& config, const PlanOptions& given) {
  PlanOptions options = given;
  if (options.ranks == 0) options.ranks = std::max(1, static_cast<int>(config.runtime.ranks));
  check(options.nodes >= 1 && options.ranks % options.nodes == 0,
        "{} ranks cannot be spread evenly over {} nodes", options.ranks, options.nodes);
  const ResolvedConfig run = resolve(config);
  check_sharding(run, options.ranks);
  check_model_keys(run);
  const std::unique_ptr<LanguageModel> model = make_model(run);
  const Units& units = model->units();
  const Plan sharded = make_plan(units, run.sharding, machine_of(options));

  std::string text = heading(run, options, units.size());
  text += fmt::format("{}\n", to_string(sharded));
  text += details(
      predict(sharded, ranks_per_node(options), optimizer_bytes_per_element(run.config.optimizer)));
  text += fmt::format("\n{}", comparison(units, run, options));
  text += kNotIncluded;
  if (options.partition) {
    for (const GroupPlan& group : sharded.groups) {
      text += fmt::format("\n{}", to_string(group.partition));
    }
  }
  return text;
}

}  // namespace tessera
