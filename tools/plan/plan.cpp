#include "tools/plan/plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/check.h"
#include "sharding/plan/bucket.h"
#include "sharding/plan/footprint.h"
#include "sharding/plan/partition.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/crossing.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

/// One figure over all ranks.
struct Spread {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  double sum = 0.0;
  int ranks = 0;

  void add(std::int64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
    sum += static_cast<double>(value);
    ++ranks;
  }
  double mean() const { return sum / ranks; }
};

struct Prediction {
  Spread parameters, gradients, optimizer, communication, total, on_host, bytes_sent;
};

/// The machine that `options` describe: GPUs, since offloading changes nothing on a CPU.
Machine machine_of(const PlanOptions& options) {
  return {.ranks = options.ranks,
          .ranks_per_node = options.nodes > 1 ? options.ranks / options.nodes : 0};
}

Prediction predict(const Units& units, const Config& config, const PlanOptions& options) {
  const Plan plan = make_plan(units, sharding_options(config), machine_of(options));
  const std::int64_t optimizer_bytes = optimizer_bytes_per_element(config.optimizer);
  Prediction all;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Footprint one = footprint_of(plan, rank, optimizer_bytes);
    all.parameters.add(one.parameters);
    all.gradients.add(one.gradients);
    all.optimizer.add(one.optimizer);
    all.communication.add(one.communication);
    all.total.add(one.parameters + one.gradients + one.optimizer + one.communication);
    all.on_host.add(one.host.parameters + one.host.gradients + one.host.optimizer);
    all.bytes_sent.add(one.bytes_sent);
  }
  return all;
}

/// "1.50 GiB": a number of four digits at most before the point.
std::string readable(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string row_of(const char* name, const Spread& spread) {
  return fmt::format("  {:<14} {:>12} {:>12} {:>12} {:>18}\n", name,
                     readable(static_cast<double>(spread.least)), readable(spread.mean()),
                     readable(static_cast<double>(spread.most)), spread.most);
}

/// The configured strategy, by category.
std::string details(const Prediction& p) {
  std::string text = fmt::format("  {:<14} {:>12} {:>12} {:>12} {:>18}\n", "per rank", "least",
                                 "mean", "most", "most, in bytes");
  text += row_of("parameters", p.parameters);
  text += row_of("gradients", p.gradients);
  text += row_of("optimizer", p.optimizer);
  text += row_of("communication", p.communication);
  text += row_of("total", p.total);
  if (p.on_host.most > 0) text += row_of("in host memory", p.on_host);
  text += row_of("sent per step", p.bytes_sent);
  return text;
}

std::string comparison_row(const Units& units, const Config& config, const std::string& name,
                           const PlanOptions& options) {
  const std::string line = fmt::format("  {:<10}", name);
  try {
    const Prediction p = predict(units, config, options);
    std::string text = line;
    for (const Spread* spread :
         {&p.parameters, &p.gradients, &p.optimizer, &p.communication, &p.total, &p.bytes_sent}) {
      text += fmt::format(" {:>13}", readable(static_cast<double>(spread->most)));
    }
    if (options.nodes == 1) return text + "\n";
    const std::optional<double> crossing =
        bytes_across_nodes(units, sharding_options(config), options.ranks,
                           options.ranks / options.nodes, p.bytes_sent.mean());
    return text + fmt::format(" {:>13}\n", crossing ? readable(*crossing) : "?");
  } catch (const Error& error) {
    return fmt::format("{} {}\n", line, error.what());
  }
}

std::string comparison(const Units& units, const Config& config, const PlanOptions& options) {
  std::string text =
      fmt::format("  {:<10} {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}", "most", "parameters",
                  "gradients", "optimizer", "communication", "total", "sent per step");
  text += options.nodes > 1 ? fmt::format(" {:>13}\n", "leaves node") : "\n";
  for (const std::string& name : strategy_variants()) {
    text += comparison_row(units, variant_of(config, name), name, options);
  }
  return text;
}

}  // namespace

std::string plan(const Config& config, const PlanOptions& given) {
  PlanOptions options = given;
  if (options.ranks == 0) options.ranks = std::max(1, static_cast<int>(config.runtime.ranks));
  const int ranks = options.ranks;
  check(options.nodes >= 1 && ranks % options.nodes == 0,
        "{} ranks cannot be spread evenly over {} nodes", ranks, options.nodes);
  const ResolvedConfig run = resolve(config);
  const ShardingOptions& sharding = run.sharding;
  const std::unique_ptr<LanguageModel> model = make_model(run);
  const Units& units = model->units();
  const Plan sharded = make_plan(units, sharding, machine_of(options));

  std::int64_t parameters = 0;
  for (const Parameter& parameter : parameters_of(*model)) parameters += parameter.numel();
  std::string text = fmt::format(
      "{} on {} rank{} (replicas x shards: {} x {}){}: {} parameters in {} units, computed with in "
      "{}, {}\n\n",
      variant_name(sharding), ranks, ranks == 1 ? "" : "s", sharded.mesh.size_along({"replica"}),
      sharded.mesh.size_along({"shard"}),
      options.nodes > 1 ? fmt::format(", {} per node", ranks / options.nodes) : "", parameters,
      units.size(), name_of(sharding.compute_dtype), enum_name(config.optimizer.name));
  text += details(predict(units, config, options));
  text += "\nEvery strategy, the rank with the most";
  if (options.nodes > 1) text += " (and what leaves a node, the mean)";
  text += ":\n\n";
  text += comparison(units, config, options);
  text +=
      "\nTo these bytes, which are exact, come the activations, which depend on batch, sequence "
      "and "
      "sharding.activation_checkpointing and are not predicted.\n";
  if (options.partition) {
    for (const GroupPlan& group : sharded.groups) text += '\n' + to_string(group.partition);
  }
  return text;
}

}  // namespace tessera
