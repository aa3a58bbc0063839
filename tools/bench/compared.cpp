#include "tools/bench/compared.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/threads.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/world.h"
#include "tools/bench/command_line.h"
#include "tools/config/keys.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/lengths.h"
#include "tools/train/resolve.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

/// Keys of the world, which all rows share.
constexpr std::string_view kShared[] = {"runtime.device",         "sharding.communicator",
                                        "sharding.deterministic", "sharding.check_collectives",
                                        "sharding.nccl_ctas",     "sharding.nccl_windows",
                                        "sharding.timeout"};

/// Keys that no loss, norm or weight depends on. (Replicas of a size that is not a power of two
/// are the exception; see RowFigures::summed_apart.)
constexpr std::string_view kWithoutEffect[] = {"data.train",
                                               "data.val",
                                               "data.hellaswag",
                                               "sharding.strategy",
                                               "sharding.flatten_parameters",
                                               "sharding.shard_size",
                                               "sharding.expert_parallel",
                                               "sharding.pipeline_schedule",
                                               "sharding.pipeline_chunks",
                                               "sharding.pipeline_stages",
                                               "sharding.expert_copies",
                                               "sharding.buckets",
                                               "sharding.reshard_after_forward",
                                               "sharding.live_gathers",
                                               "sharding.prefetch",
                                               "sharding.check_replicas",
                                               "sharding.offload",
                                               "sharding.activation_checkpointing",
                                               "kernels.early_launch",
                                               "runtime.graph",
                                               "runtime.threads",
                                               "runtime.pin"};

/// Keys of how ranks share out the work. Results depend on them where sums are formed in other parts.
constexpr std::string_view kCuts[] = {"sharding.tensor_parallel", "sharding.context_parallel"};

bool is_in(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

int ranks_of(const Config& config) {
  const int asked = static_cast<int>(config.runtime.ranks);
  return asked > 0 ? asked : planned_ranks(world_options(config));
}

/// Whether the rows of a step are added in the same parts.
bool sums_rows_alike(const Config& a, const Config& b) {
  if (a.train.elastic > 0 && b.train.elastic > 0) return true;
  return batch_ranks(a, ranks_of(a)) == batch_ranks(b, ranks_of(b));
}

/// Whether a key with another value in `first` may change losses, norms or weights.
bool has_effect(std::string_view key, const Config& config, const Config& first) {
  if (key == "train.seed" || key == "train.elastic") return true;
  if (key.starts_with("train.") || key.starts_with("sample.")) return false;
  if (key == "runtime.ranks" || key == "sharding.pipeline_parallel") {
    return !sums_rows_alike(config, first);
  }
  if (is_in(kCuts, key)) return config.sharding.grid == 0 || !sums_rows_alike(config, first);
  return !is_in(kWithoutEffect, key);
}

/// The key that a name in a row stands for. An unknown name is kept.
std::string full_key(const std::string& name) {
  if (const std::string_view key = key_of_short_form(name); !key.empty()) return std::string(key);
  Config config;
  std::vector<std::string> found;
  for (const Key& key : keys_of(config)) {
    if (key.name.ends_with("." + name)) found.push_back(key.name);
  }
  return found.size() == 1 ? found.front() : name;
}

/// The words of a row: "every" and "2" of "checkpointing=every 2" belong together.
std::vector<std::string> settings_of(std::string_view row) {
  std::vector<std::string> settings;
  for (const std::string_view word : split(row, ' ')) {
    if (word.empty()) continue;
    const bool begins = settings.empty() || word.find('=') != word.npos;
    if (begins) {
      settings.emplace_back(word);
    } else {
      settings.back() += fmt::format(" {}", word);
    }
  }
  return settings;
}

Config with_settings(const Config& base, std::string_view row) {
  std::vector<std::string> settings = settings_of(row);
  check(!settings.empty(), "--rows: a row is empty; rows are separated by ';'");
  Config config = base;
  const std::string place = fmt::format("--rows '{}'", row);
  if (const std::string first = settings.front(); first.find('=') == first.npos) {
    const std::vector<std::string>& all = strategy_variants();
    check(std::find(all.begin(), all.end(), first) != all.end(),
          "{}: '{}' is neither a strategy ({}) nor of the form key=value; ';' separates rows",
          place, first, fmt::join(all, ", "));
    config = variant_of(base, first);
    settings.erase(settings.begin());
  }
  for (std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    setting = full_key(setting.substr(0, equals)) + setting.substr(equals);
  }
  set_keys(config, settings, place);
  return config;
}

/// Two rows of one name are told apart by a number.
std::vector<Compared> numbered(std::vector<Compared> rows) {
  std::map<std::string, int> seen;
  for (Compared& row : rows) {
    const int count = ++seen[row.name];
    if (count > 1) row.name += fmt::format(" ({})", count);
  }
  return rows;
}

/// Gives rows without ranks or device those of the others, and rows without threads their share of
/// the cores.
void share_world(std::vector<Compared>& rows) {
  const auto asks = [](const Compared& row) { return row.config.runtime.ranks > 0; };
  const auto is_single = [](const Compared& row) {
    return row.config.sharding.strategy == StrategyKind::single;
  };
  const auto asking = std::find_if(rows.begin(), rows.end(), asks);
  std::int64_t ranks = 0;
  if (asking != rows.end()) {
    ranks = asking->config.runtime.ranks;
  } else if (find_launch().kind == Launch::Kind::none) {
    ranks = std::all_of(rows.begin(), rows.end(), is_single) ? 1 : 2;
  }
  for (Compared& row : rows) {
    RuntimeConfig& runtime = row.config.runtime;
    if (runtime.ranks == 0) runtime.ranks = ranks;
    runtime.device = first_device(runtime);
    if (runtime.threads == 0 && runtime.ranks > 0) {
      runtime.threads = std::max(std::int64_t{1}, available_threads() / runtime.ranks);
    }
  }
  for (const Compared& row : rows) {
    for (const auto& [key, value] : changes_of(row.config, rows.front().config)) {
      check(!is_in(kShared, key),
            "{} is {} in {} and another in {}; the rows of a comparison run in one world", key,
            value, row.name, rows.front().name);
    }
  }
}

}  // namespace

std::vector<Compared> compare_by_strategies(const Config& base,
                                            const std::vector<std::string>& strategies) {
  std::vector<Compared> rows;
  for (const std::string& name : strategies) rows.push_back({name, variant_of(base, name)});
  return numbered(std::move(rows));
}

std::vector<Compared> compare_by_options(const Config& base, const std::string& rows) {
  std::vector<Compared> all;
  for (const std::string_view row : split(rows, ';')) {
    all.push_back({std::string(row), with_settings(base, row)});
  }
  check(!all.empty(), "--rows: expected rows such as 'fsdp; fsdp dtype=bf16'");
  return numbered(std::move(all));
}

std::vector<Compared> compare_by_names(const std::vector<std::string>& names,
                                       std::span<const std::string> overrides) {
  const auto is_override = [](const std::string& text) { return text.find('=') != text.npos; };
  check(names.size() > 1 && std::all_of(overrides.begin(), overrides.end(), is_override),
        "--pair: expected two configurations or more, separated by commas without spaces: "
        "a.yaml,gpt2");
  std::vector<Compared> rows;
  for (const std::string& name : names) rows.push_back({name, workload(name, overrides)});
  return numbered(std::move(rows));
}

void prepare_rows(std::vector<Compared>& rows) {
  share_world(rows);
  for (Compared& row : rows) {
    try {
      const int ranks = ranks_of(row.config);
      const ResolvedConfig run = resolve(with_batch_size(row.config, ranks));
      check_ranks(run, ranks);
      check_model_keys(run);
      row.config = run.config;
      row.model = describe_model(run);
    } catch (const Error& error) {
      fail("{}: {}", row.name, error.what());
    }
  }
}

WorldOptions world_of(const std::vector<Compared>& rows) {
  const auto fewer = [](const Compared& a, const Compared& b) {
    return a.config.runtime.ranks < b.config.runtime.ranks;
  };
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end(), fewer);
  WorldOptions world = world_options(rows.front().config);
  world.ranks = static_cast<int>(most->config.runtime.ranks);
  world.pin = false;           // rows bind their own threads
  world.deterministic = true;  // NCCL's own order of sums would give other bits
  // Ranks that compare a whole step's calls do so in the whole world, and some would be missing.
  if (fewer(*least, *most)) world.check_collectives = CheckCollectives::always;
  return world;
}

std::vector<std::pair<std::string, std::string>> changes_of(const Config& config,
                                                            const Config& first) {
  Config now = config, before = first;
  const std::vector<Key> keys = keys_of(now), old_keys = keys_of(before);
  std::vector<std::pair<std::string, std::string>> changes;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string value = keys[i].text();
    if (value != old_keys[i].text()) changes.emplace_back(keys[i].name, value);
  }
  return changes;
}

std::vector<std::string> computes_otherwise(const Config& config, const Config& first) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : changes_of(config, first)) {
    if (has_effect(key, config, first)) keys.push_back(key);
  }
  return keys;
}

}  // namespace tessera
