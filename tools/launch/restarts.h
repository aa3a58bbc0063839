// Restarts: whether a run that has ended is started again, on how many ranks, and when.
#pragma once

#include <string>
#include <vector>

namespace tessera {

/// How one start of a run ended.
struct Attempt {
  /// As shells report it: 128 + S after signal S.
  int status = 0;
  /// mpirun did not end after its ranks, and was killed.
  bool hung = false;
  /// It began to train.
  bool trained = false;
  /// It left a newer checkpoint than it found.
  bool progressed = false;
};

struct RestartLimits {
  /// Restarts of the whole run.
  int most = 3;
  /// The wait before the first restart. It doubles with each restart without progress, up to a
  /// minute.
  double seconds = 1.0;
};

/// The rules, in this order:
///
///   1. A run has at most RestartLimits::most restarts.
///   2. After the second failure in a row without progress it goes on with fewer ranks, if the user
///      permits that.
///   3. Otherwise a run that ends with an error before it begins to train is not started again: its
///      configuration or its files are wrong. Nor is one that ends with an error twice in a row
///      without progress: the same steps have the same result.
class Restarts {
 public:
  /// `ranks`: the number of ranks, and the smaller ones that the user permits, in falling order.
  Restarts(const RestartLimits& limits, std::vector<int> ranks);

  /// The ranks of the next start.
  int ranks() const { return ranks_[smaller_]; }
  /// Restarts so far.
  int count() const { return count_; }

  struct Decision {
    bool restarts = false;
    /// Why the run ended, or why it is not started again.
    std::string reason;
    /// Seconds until the restart.
    double delay = 0.0;
  };
  /// After a start that ended with another status than 0.
  Decision after(const Attempt& attempt);

 private:
  bool takes_fewer_ranks();

  RestartLimits limits_;
  std::vector<int> ranks_;
  std::size_t smaller_ = 0;
  int count_ = 0;
  /// Failures in a row without progress, and those of them with an error.
  int failures_ = 0;
  int errors_ = 0;
};

/// "a rank was ended by SIGKILL", or "it ended with status 1".
std::string describe_status(int status);

}  // namespace tessera
