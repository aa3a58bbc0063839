// The configurations that bench_strategies compares, and three ways to list them.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/comm/options.h"
#include "tools/config/config.h"

namespace tessera {

/// One row of a comparison.
struct Compared {
  std::string name;
  Config config;
  /// describe_model() (tools/train/resolve.h). prepare_rows() sets it.
  std::string model = {};
};

/// `base` under each of these strategies; their names are those of strategy_variants().
std::vector<Compared> compare_by_strategies(const Config& base,
                                            const std::vector<std::string>& strategies);

/// `base` with the settings of each row of a text such as "fsdp; fsdp dtype=bf16; ddp". A row
/// begins with a strategy, or keeps that of `base`. Settings have the form key=value. The last part
/// of a key is enough where no other key ends in it; dtype, checkpointing, attention, batch and
/// sequence are the benchmarks' options of these names. Raises Error about a row that sets no known
/// key.
std::vector<Compared> compare_by_options(const Config& base, const std::string& rows);

/// Each of these configurations, as workload() (workload.h) finds them by name, with the overrides.
std::vector<Compared> compare_by_names(const std::vector<std::string>& names,
                                       std::span<const std::string> overrides);

/// Completes and checks rows that will run in one world. A row without ranks or device takes those
/// of the others; without any there are two ranks, or one for strategy `single`, or the launcher's.
/// A row without threads shares the cores among its own ranks.
/// Raises Error if the rows differ in devices or communication, or if a row or its batch does not
/// suit its ranks.
void prepare_rows(std::vector<Compared>& rows);

/// The world in which prepared rows run: it has the ranks of the row with the most.
WorldOptions world_of(const std::vector<Compared>& rows);

/// The keys with another value than in `first`, with their values.
std::vector<std::pair<std::string, std::string>> changes_of(const Config& config,
                                                            const Config& first);

/// Those of them that may change losses, norms or weights.
std::vector<std::string> computes_otherwise(const Config& config, const Config& first);

}  // namespace tessera
