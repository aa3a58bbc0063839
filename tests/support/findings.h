// Collects failures of ranks that are threads.
//
// Catch's assertions work on one thread only, so the test checks the collection at its end.
#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace tessera::test {

class Findings {
 public:
  void expect(bool holds, const std::string& what) {
    if (holds) return;
    const std::lock_guard lock(mutex_);
    wrong_.push_back(what);
  }
  std::vector<std::string> wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> wrong_;
};

}  // namespace tessera::test
