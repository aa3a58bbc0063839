#include "sharding/comm/call_history.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

std::uint64_t end_of(const CallHistory::Summary& summary) {
  return summary.first + summary.count;
}

std::uint64_t first_kept(const CallHistory::Summary& summary) {
  return end_of(summary) - std::min(summary.count, CallHistory::kKept);
}

}  // namespace

void CallHistory::add(const Call& call) {
  const std::uint64_t value = fingerprint(call);
  Fnv1a hash;
  hash.add(hash_);
  hash.add(value);
  hash_ = hash.value();
  if (summary_.count++ == 0) {
    summary_.first = call.number;
    descriptions_.resize(kKept);
  }
  summary_.fingerprints[call.number % kKept] = value;
  descriptions_[call.number % kKept] = describe(call);
}

std::uint64_t CallHistory::first_difference(const Summary& one, const Summary& other) {
  const std::uint64_t end = std::min(end_of(one), end_of(other));
  for (std::uint64_t n = std::max(first_kept(one), first_kept(other)); n < end; ++n) {
    if (one.fingerprints[n % kKept] != other.fingerprints[n % kKept]) return n;
  }
  return end;
}

std::string CallHistory::description(std::uint64_t number) const {
  if (number >= end_of(summary_)) return fmt::format("no call {}", number);
  if (number < first_kept(summary_)) return fmt::format("call {}, no longer known", number);
  return descriptions_[number % kKept];
}

}  // namespace tessera
