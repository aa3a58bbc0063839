// The key of a schedule's table.
#pragma once

#include <string>
#include <vector>

#include "optim/schedule.h"
#include "tools/config/keys.h"

namespace tessera {

/// A key with a list of [step, factor]: "[[1, 1], [100, 0.5]]".
Key schedule_table_key(std::string name, std::vector<ScheduleStage>& table,
                       std::string documentation);

}  // namespace tessera
