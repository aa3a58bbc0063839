// The optimizers that a configuration describes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optim/groups.h"
#include "runtime/matrix_exchange.h"
#include "sharding/plan/footprint.h"
#include "sharding/shard.h"
#include "tools/train/parameter_groups.h"

namespace tessera {

/// The exchange of the matrices of parameters that are included (Strategy::make_matrix_exchange).
using MakeMatrixExchange = std::function<std::unique_ptr<MatrixExchange>(
    const std::function<bool(const Parameter&)>& includes)>;

/// One optimizer for all groups of equal settings (tools/config/optimizer_groups.h), in the order of the
/// groups and the same on every rank. They update those shards that are trained. With muon a collective.
std::vector<OptimizerGroups::Group> make_optimizers(const Config& config,
                                                    const LanguageModel& model,
                                                    const std::vector<Shard>& shards,
                                                    const MakeMatrixExchange& exchange);

/// Bytes of their state for each parameter.
StateBytes state_bytes(const Config& config, const LanguageModel& model);
/// The same for one element of a group's parameters.
std::int64_t state_bytes_per_element(const OptimizerConfig& settings, const TrainConfig& train);

/// The learning rate of the section, or of a group, in a run of so many steps.
ScheduleOptions schedule_of(const OptimizerConfig& settings, std::int64_t steps);
/// The rates of the listed groups that are trained, by their match, in `step`, counted from 1.
std::vector<std::pair<std::string, double>> group_learning_rates(const Config& config,
                                                                 std::int64_t step);
/// Raises Error if a group's warm-up and decay do not fit into the steps of the run.
void check_schedules(const Config& config);

}  // namespace tessera
