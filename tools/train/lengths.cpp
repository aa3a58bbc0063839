#include "tools/train/lengths.h"

#include "runtime/check.h"
#include "runtime/integer.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

/// Raises Error if both of two keys were set that say the same.
void check_one_of(const Config& config, std::string_view key, std::string_view other) {
  check_key(config, key, [&] {
    check(!config.places.contains(other), "{} and {} are both set; leave one out", key, other);
  });
}

}  // namespace

Config with_batch_size(Config config, int ranks) {
  std::int64_t& rows = config.data.rows_per_rank;
  if (rows == 0) return config;
  check_one_of(config, "data.rows_per_rank", "data.batch_size");
  config.data.batch_size = rows * batch_ranks(config, ranks);
  rows = 0;
  return config;
}

void set_steps(ResolvedConfig& run, std::int64_t samples) {
  std::int64_t& epochs = run.config.train.epochs;
  if (epochs == 0) return;
  check_one_of(run.config, "train.epochs", "train.steps");
  check_key(run.config, "train.epochs", [&] {
    constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
    check(epochs <= kMostRows / samples, "{} epochs of {} rows are too many", epochs, samples);
  });
  check_one_of(run.config, "train.epochs", "train.batch_ramp");
  run.config.train.steps = ceil_div(epochs * samples, run.config.data.batch_size);
  epochs = 0;
}

}  // namespace tessera
