#include "tools/train/resume.h"

#include <algorithm>
#include <optional>

#include "models/hugging_face.h"
#include "runtime/check.h"
#include "sharding/checkpoint/reader.h"
#include "tools/config/keys.h"
#include "tools/config/parse.h"
#include "tools/train/run_state.h"

namespace tessera {
namespace {

struct SavedConfig {
  Config config;
  CheckpointFolder checkpoint;
  /// As run_state.h has it.
  std::string base;
};

/// The configuration in the newest checkpoint that can be read; none if no checkpoint can.
std::optional<SavedConfig> newest_config(const std::vector<CheckpointFolder>& checkpoints) {
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    std::string yaml, base;
    try {
      CheckpointReader reader(checkpoint->path);
      yaml = reader.text(kConfigFile);
      base = base_fingerprint(reader.manifest());
    } catch (const Error&) {
      continue;  // the run names it when it loads
    }
    const std::string source = (checkpoint->path / kConfigFile).string();
    return SavedConfig{parse_config(yaml, source), *checkpoint, base};
  }
  return std::nullopt;
}

}  // namespace

std::vector<CheckpointFolder> resumable_checkpoints(const Config& config) {
  const std::string& resume = config.train.resume;
  if (resume == "never") return {};
  if (resume == "auto") return checkpoints_in(config.train.dir);
  std::vector<CheckpointFolder> found;
  check_key(config, "train.resume", [&] { found = checkpoints_at(resume); });
  return found;
}

bool may_change_on_resume(std::string_view key) {
  if (key == "train.seed" || key == "train.ema" || key == "train.elastic") return false;
  if (key == "train.batch_ramp") return false;
  if (key == "data.hellaswag") return true;
  const auto is_in = [&](std::string_view section) { return key.starts_with(section); };
  return is_in("runtime.") || is_in("sharding.") || is_in("kernels.") || is_in("train.") ||
         is_in("sample.");
}

void check_resume(const Config& config) {
  std::optional<SavedConfig> saved = newest_config(resumable_checkpoints(config));
  if (!saved) return;
  Config now = config;
  const std::vector<Key> keys = keys_of(now);
  const std::vector<Key> old_keys = keys_of(saved->config);
  const std::string folder = saved->checkpoint.path.string();
  check_with_place(config, [&] {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (may_change_on_resume(keys[i].name)) continue;
      const std::string before = old_keys[i].text(), after = keys[i].text();
      check(before == after,
            "{} is '{}', but '{}' in {}, from which the run would continue; set it back, or "
            "train.resume=never to start again",
            keys[i].name, after, before, folder);
    }
    check(config.train.steps >= saved->checkpoint.step,
          "train.steps {} is less than the {} steps of {}, from which the run would continue",
          config.train.steps, saved->checkpoint.step, folder);
    if (saved->base.empty()) return;
    const std::string base = weights_fingerprint(config.model.init_from);
    check(base == saved->base,
          "model.init_from {} has other weights (fingerprint {}) than the base of {} ({}), from "
          "which the run would continue; put them back, or train.resume=never to start again",
          config.model.init_from.string(), base, folder, saved->base);
  });
}

}  // namespace tessera
