// The fields of the event `start`: the run, and the predictions for it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sharding/comm/communicator.h"
#include "tools/train/session.h"

namespace tessera {

/// `predicted` has the bytes of memory by category and the bytes that a rank sends in a step, of the
/// rank with the most (tools/plan/prediction.h). The last is null with sharding.expert_parallel: the rows
/// that go to experts are not known.
nlohmann::ordered_json describe_run(const ResolvedConfig& run, TrainingSession& session,
                                    const Communicator& world);

/// The parts that are slower in a run on `device` than its options let one expect, a line each.
std::vector<std::string> speed_notes(const ResolvedConfig& run, const Device& device);

}  // namespace tessera
