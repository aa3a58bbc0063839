// A ring of ranks: each one sends to the next and receives from the one before.
#pragma once

#include <span>

namespace tessera::course {

class Ring {
 public:
  virtual ~Ring() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Sends one message to rank + 1 and receives one from rank - 1 (modulo the ranks). Returns when it
  /// has arrived. The lengths must be those of the message that each side means.
  virtual void exchange(std::span<const float> sent, std::span<float> received) = 0;
};

/// Replaces the values by their sums over all ranks. Part p of n values is [p n / N, (p + 1) n / N).
void all_reduce(Ring& ring, std::span<float> values);

}  // namespace tessera::course
