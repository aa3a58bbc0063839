#include "tools/train/trainer.h"

#include <optional>

#include "runtime/check.h"
#include "sharding/comm/launcher.h"
#include "sharding/comm/world.h"
#include "sharding/plan/placement.h"
#include "tools/config/kernel_options.h"
#include "tools/config/parse.h"
#include "tools/plan/advice.h"
#include "tools/train/lengths.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve_ranks.h"
#include "tools/train/resume.h"
#include "tools/train/run_folder.h"
#include "tools/train/runner.h"
#include "tools/train/world_options.h"

namespace tessera {
namespace {

/// Checks of values together that only training needs.
void check_training(const Config& config) {
  check_with_place(config, [&] {
    check(!config.data.train.empty(),
          "data.train is not set: name a token file made by 'tessera prepare'");
    check(!config.train.dir.empty(), "train.dir is empty: name a folder for the run");
    check((config.adapter.rank == 0 && config.adapter.path.empty()) ||
              !config.model.init_from.empty(),
          "model.init_from is not set: name the model that the adapter is trained on");
    check(!config.train.evaluate_ema || config.train.ema > 0.0,
          "train.evaluate_ema is true, but train.ema is 0: there is no average");
  });
}

}  // namespace

void train(const Config& config, const std::string& restarted) {
  const WorldOptions options = world_options(config);
  std::optional<ResolvedConfig> run;
  std::optional<RunData> data;
  check_once(options, [&] {
    check_training(config);
    const int ranks = planned_ranks(options);
    run = resolve(with_batch_size(config, ranks));
    check_ranks(*run, ranks);
    check_model_keys(*run);
    if (config.train.epochs > 0) {
      data.emplace(*run);
      set_steps(*run, data->train.samples());
    }
    check_with_place(run->config, [&] { check_schedules(run->config); });
    check_resume(run->config);
    if (!data) data.emplace(*run);
  });
  // Under a launcher rank 0 alone finds out: the other machines need not have the folder.
  if (find_launch().kind == Launch::Kind::none) check_outputs(config);
  run_world(options, [&](Communicator& world) {
    choose_kernels(config);
    with_training_advice(config, world, [&] { Runner(*run, *data, world, restarted).execute(); });
  });
}

}  // namespace tessera
