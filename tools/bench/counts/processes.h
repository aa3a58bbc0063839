// Jobs in processes of their own, several at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

/// job(0), job(1), ... are run in copies of this process, as many at a time as there are processors,
/// and return a text each. The last one begins first: the longest belongs there. `progress` gets the
/// number of jobs that have ended. Raises Error if a job fails, after the job's message on standard
/// error. The calling thread must be the process's only one.
std::vector<std::string> run_in_processes(std::size_t jobs,
                                          const std::function<std::string(std::size_t)>& job,
                                          const std::function<void(std::size_t)>& progress);

}  // namespace tessera
