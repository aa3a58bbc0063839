#include "tools/launch/restarts.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "tools/launch/process_tree.h"

namespace tessera {
namespace {

constexpr double kLongestDelay = 60.0;

bool by_signal(int status) {
  return status > 128;
}

}  // namespace

std::string describe_status(int status) {
  return by_signal(status) ? fmt::format("a rank was ended by {}", name_of_signal(status - 128))
                           : fmt::format("it ended with status {}", status);
}

Restarts::Restarts(const RestartLimits& limits, std::vector<int> ranks)
    : limits_(limits), ranks_(std::move(ranks)) {
  check(!ranks_.empty() && ranks_.back() >= 1, "a run has at least 1 rank");
}

bool Restarts::takes_fewer_ranks() {
  if (failures_ < 2 || smaller_ + 1 == ranks_.size()) return false;
  ++smaller_;
  failures_ = errors_ = 0;
  return true;
}

Restarts::Decision Restarts::after(const Attempt& attempt) {
  const std::string status =
      attempt.hung ? "mpirun did not end after its ranks" : describe_status(attempt.status);
  if (attempt.progressed) failures_ = errors_ = 0;
  ++failures_;
  if (!by_signal(attempt.status)) ++errors_;
  const double delay =
      std::min(kLongestDelay, std::ldexp(limits_.seconds, std::min(failures_ - 1, 30)));
  const bool refused = !attempt.trained && !by_signal(attempt.status);
  if (count_ == limits_.most) {
    return {.reason = fmt::format("{}, and --max-restarts is {}", status, limits_.most)};
  }
  if (!takes_fewer_ranks() && (refused || errors_ > 1)) {
    return {.reason = status + (refused ? " before it began to train"
                                        : " again, without a checkpoint in between")};
  }
  ++count_;
  return {.restarts = true, .reason = status, .delay = delay};
}

}  // namespace tessera
