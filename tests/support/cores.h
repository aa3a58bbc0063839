// The cores of threads by the system's own account.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "runtime/threads.h"

namespace tessera {

using Cores = std::vector<int>;

/// The cores that the calling thread may run on.
inline Cores cores_of_system() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// The cores that each thread of a team may run on, thread by thread; the caller's come first.
inline std::vector<Cores> cores_of_team(ThreadTeam& team) {
  std::vector<Cores> cores(static_cast<std::size_t>(team.size()));
  std::atomic<int> begun = 0;
  team.run(team.size(), [&](std::int64_t i) {
    ++begun;
    while (begun < team.size()) std::this_thread::yield();  // so each thread takes its own task
    cores[static_cast<std::size_t>(i)] = cores_of_system();
  });
  return cores;
}

}  // namespace tessera
