#include "tools/train/optimizer.h"

#include <algorithm>
#include <memory>

#include "optim/adamw.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/shards.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// The rule of a group, for its shards. `seed`: that of the run, for stochastic rounding.
std::unique_ptr<Optimizer> make_rule(
    const OptimizerConfig& settings, std::vector<ParameterShard> shards, std::uint64_t seed,
    const std::function<std::unique_ptr<MatrixExchange>()>& exchange) {
  if (settings.name == OptimizerKind::muon) {
    return std::make_unique<Muon>(std::move(shards), exchange(),
                                  MuonOptions{.momentum = settings.muon_momentum,
                                              .nesterov = settings.muon_nesterov,
                                              .weight_decay = settings.weight_decay,
                                              .scale = settings.muon_scale});
  }
  if (settings.name == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(std::move(shards),
                                 SgdOptions{.momentum = settings.momentum,
                                            .nesterov = settings.nesterov,
                                            .weight_decay = settings.weight_decay});
  }
  return std::make_unique<AdamW>(std::move(shards),
                                 AdamWOptions{.beta1 = settings.beta1,
                                              .beta2 = settings.beta2,
                                              .epsilon = settings.epsilon,
                                              .weight_decay = settings.weight_decay,
                                              .state_dtype = settings.state_dtype,
                                              .seed = seed});
}

/// The parameters of equal settings.
struct Rule {
  OptimizerConfig settings;
  std::vector<ParameterShard> shards;
};

}  // namespace

ScheduleOptions schedule_of(const OptimizerConfig& settings, std::int64_t steps) {
  return {.kind = settings.schedule,
          .learning_rate = settings.learning_rate,
          .minimum_ratio = settings.minimum_learning_rate_ratio,
          .warmup_steps = settings.warmup_steps,
          .total_steps = steps,
          .decay_steps = settings.decay_steps,
          .decay_shape = settings.decay_shape,
          .table = settings.table};
}

std::vector<OptimizerGroups::Group> make_optimizers(const Config& config,
                                                    const LanguageModel& model,
                                                    const std::vector<Shard>& shards,
                                                    const MakeMatrixExchange& exchange) {
  const ParameterGroups groups = parameter_groups(config.optimizer, model);
  std::vector<Rule> rules;
  const auto rule_of = [&](const OptimizerConfig& settings) {
    return std::find_if(rules.begin(), rules.end(),
                        [&](const Rule& rule) { return rule.settings == settings; });
  };
  for (const OptimizerGroup& group : groups.groups) {
    if (group.frozen) continue;
    for (const OptimizerConfig& settings : {group.settings, settings_of_rest(group)}) {
      if (rule_of(settings) == rules.end()) rules.push_back({settings, {}});
    }
  }
  const std::vector<ParameterShard> trained = shards_for_optimizer(shards);
  std::size_t next = 0;
  for (const Shard& shard : shards) {
    if (!shard.parameter.trainable()) continue;
    ParameterShard mine = trained[next++];
    mine.decay = groups.decays(shard.parameter);
    rule_of(groups.settings_of(shard.parameter))->shards.push_back(std::move(mine));
  }
  const auto seed = static_cast<std::uint64_t>(config.train.seed);
  std::vector<OptimizerGroups::Group> made;
  for (Rule& rule : rules) {
    const auto of_rule = [&] {
      return exchange([&](const Parameter& parameter) {
        return groups.settings_of(parameter) == rule.settings;
      });
    };
    made.push_back({make_rule(rule.settings, std::move(rule.shards), seed, of_rule),
                    schedule_of(rule.settings, config.train.steps)});
  }
  return made;
}

StateBytes state_bytes(const Config& config, const LanguageModel& model) {
  const ParameterGroups groups = parameter_groups(config.optimizer, model);
  std::map<std::string, std::int64_t> bytes;
  for (const Parameter& parameter : parameters_of(model)) {
    if (!parameter.trainable()) continue;
    bytes[parameter.name()] = state_bytes_per_element(groups.settings_of(parameter), config.train);
  }
  return bytes;
}

std::int64_t state_bytes_per_element(const OptimizerConfig& settings, const TrainConfig& train) {
  constexpr std::int64_t kF32 = 4;
  const std::int64_t average = train.ema > 0.0 ? kF32 : 0;
  if (settings.name == OptimizerKind::muon) return average + kF32;
  if (settings.name == OptimizerKind::sgd) return average + (settings.momentum > 0.0 ? kF32 : 0);
  return average + 2 * static_cast<std::int64_t>(size_of(settings.state_dtype));  // two moments
}

std::vector<std::pair<std::string, double>> group_learning_rates(const Config& config,
                                                                 std::int64_t step) {
  std::vector<std::pair<std::string, double>> rates;
  for (const OptimizerGroup& group : optimizer_groups(config.optimizer)) {
    if (!group.listed || group.frozen) continue;
    const ScheduleOptions schedule = schedule_of(group.settings, config.train.steps);
    rates.emplace_back(group.match, learning_rate_at(schedule, step - 1));
  }
  return rates;
}

void check_schedules(const Config& config) {
  for (const OptimizerGroup& group : optimizer_groups(config.optimizer)) {
    const OptimizerConfig& settings = group.settings;
    check(settings.warmup_steps <= config.train.steps,
          "optimizer.warmup_steps {} is more than train.steps {}; lower it for a short run",
          settings.warmup_steps, config.train.steps);
    check(settings.schedule != ScheduleKind::warmup_stable_decay ||
              settings.warmup_steps + settings.decay_steps <= config.train.steps,
          "optimizer.warmup_steps {} and optimizer.decay_steps {} are together more than "
          "train.steps {}",
          settings.warmup_steps, settings.decay_steps, config.train.steps);
    check(settings.schedule != ScheduleKind::table || !settings.table.empty(),
          "optimizer.schedule is table; list its stages in optimizer.table");
  }
}

}  // namespace tessera
