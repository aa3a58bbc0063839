// OperationPlace: where an operation runs within a training step.
//
// Ranks run different operations: stages of a pipeline, experts, tokens. Places of all ranks have one
// order, in which values flow: micro-batches one after the other, forward before backward, and units as
// the pass takes them. So the first of several places is a cause, and the others may be its consequences.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "tools/train/session.h"

namespace tessera {

struct OperationPlace {
  /// update: sums over ranks, the norm and the optimizer.
  enum class Phase { forward, backward, update };

  /// This rank's, from 0.
  std::int64_t micro_batch = 0;
  Phase phase = Phase::forward;
  /// The place of the unit in the pass, in which a tied head comes last.
  std::int64_t unit_order = 0;
  /// Operations that this rank has run before in the step.
  std::int64_t number = 0;
  int rank = 0;
  /// "h.3", or empty outside of units.
  std::string unit;

  std::strong_ordering operator<=>(const OperationPlace& other) const;
  bool operator==(const OperationPlace& other) const { return (*this <=> other) == 0; }
};

/// "forward of h.3, micro-batch 0 of rank 1".
std::string to_string(const OperationPlace& place);
/// Its numbers and names as one line, for another rank.
std::string encoded(const OperationPlace& place);
OperationPlace decoded_place(const std::string& text);

/// The places of a rank's operations, read from the open spans and the position of random numbers.
class PlaceTracker {
 public:
  PlaceTracker(TrainingSession& session, int rank);

  /// The place of the operation that comes next on this thread.
  OperationPlace next();

 private:
  void enter(std::string_view span);

  std::map<std::string, std::int64_t, std::less<>> order_;
  std::int64_t units_;
  std::int64_t batch_ranks_;
  bool begins_forward_;
  std::int64_t last_forward_ = -1;
  OperationPlace place_;
};

}  // namespace tessera
