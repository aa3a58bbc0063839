// CallHistory: the calls of one communicator during one step, as one hash and the most recent calls.
//
// Ranks that have stopped comparing every call compare histories at the end of each step. If these
// differ, the kept calls show the first call that differs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sharding/comm/call.h"

namespace tessera {

class CallHistory {
 public:
  /// How many calls are kept: the latest ones.
  static constexpr std::uint64_t kKept = 64;

  void add(const Call& call);

  /// Over the fingerprints of all calls, in order.
  std::uint64_t hash() const { return hash_; }

  /// A fixed-size value that ranks exchange after their hashes have differed.
  struct Summary {
    std::uint64_t first = 0;  // number of the step's first call
    std::uint64_t count = 0;
    std::array<std::uint64_t, kKept> fingerprints = {};  // of call n at n % kKept
  };
  const Summary& summary() const { return summary_; }

  /// The number of the first call that differs between two ranks, among those that both kept.
  static std::uint64_t first_difference(const Summary& one, const Summary& other);

  /// The description of call `number`. "no call 7" if the step had none, and "call 7, no longer
  /// known" if it is not kept.
  std::string description(std::uint64_t number) const;

 private:
  std::uint64_t hash_ = 0;
  Summary summary_;
  std::vector<std::string> descriptions_;  // of call n at n % kKept
};

}  // namespace tessera
