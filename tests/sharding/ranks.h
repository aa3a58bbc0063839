// Ranks that are threads, as most tests run them.
#pragma once

#include <functional>

#include "sharding/comm/threads/threads.h"
#include "sharding/plan/options.h"
#include "tests/support/device.h"
#include "tests/support/waiting.h"

namespace tessera::test {

/// The strategies of several ranks.
inline constexpr StrategyKind kSeveralRanks[] = {StrategyKind::ddp,   StrategyKind::zero1,
                                                 StrategyKind::zero2, StrategyKind::zero3,
                                                 StrategyKind::fsdp,  StrategyKind::hsdp};

/// Runs `body` on so many ranks with a thread each, on this build's device.
inline void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  run_ranks({.ranks = ranks, .device = device(), .threads = 1, .deadline = kSafetyLimit}, body);
}

}  // namespace tessera::test
