// A list of the copies between emulated devices: for tests of the order in which ranks read.
#pragma once

#include <vector>

namespace tessera::emulation {

/// A copy from the memory of one device to that of another.
struct PeerCopy {
  int from;
  int to;
};

/// Lists the copies between devices in the order in which they are queued, during its scope. There
/// is at most one at a time.
class PeerCopies {
 public:
  PeerCopies();
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// The copies since the last call.
  std::vector<PeerCopy> take();

 private:
  std::vector<PeerCopy> copies_;
};

}  // namespace tessera::emulation
