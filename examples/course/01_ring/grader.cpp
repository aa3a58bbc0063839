// Grades an all-reduce around a ring of threads: sums, bytes and messages.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "examples/course/01_ring/ring.h"
#include "examples/course/grader.h"

namespace tessera::course {
namespace {

constexpr std::chrono::seconds kDeadline{10};

/// The messages between two neighbours.
struct Link {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::vector<float>> messages;
};

class Rank final : public Ring {
 public:
  Rank(int rank, std::vector<Link>& links) : rank_(rank), links_(links) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(links_.size()); }

  void exchange(std::span<const float> sent, std::span<float> received) override {
    ++messages;
    bytes += sent.size_bytes();
    push(links_[static_cast<std::size_t>((rank_ + 1) % ranks())], {sent.begin(), sent.end()});
    Link& link = links_[static_cast<std::size_t>(rank_)];
    std::unique_lock lock(link.mutex);
    if (!link.arrived.wait_for(lock, kDeadline, [&] { return !link.messages.empty(); })) {
      throw std::runtime_error(fmt::format(
          "rank {} waits for a message that no rank sends: do all ranks exchange equally often?",
          rank_));
    }
    const std::vector<float> message = std::move(link.messages.front());
    link.messages.pop_front();
    if (message.size() != received.size()) {
      throw std::runtime_error(fmt::format(
          "rank {} expects {} values and receives {}: which part does its neighbour send in this "
          "round?",
          rank_, received.size(), message.size()));
    }
    std::copy(message.begin(), message.end(), received.begin());
  }

  int messages = 0;
  std::size_t bytes = 0;

 private:
  static void push(Link& link, std::vector<float> message) {
    const std::lock_guard lock(link.mutex);
    link.messages.push_back(std::move(message));
    link.arrived.notify_all();
  }

  int rank_;
  std::vector<Link>& links_;
};

struct Result {
  std::vector<std::vector<float>> values;  // by rank
  std::vector<int> messages;
  std::size_t bytes = 0;
};

/// Rank r contributes (r + 1)(i + 1) and a fraction. Sums of these are exact.
float value_of(std::size_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * (i + 1)) + 0.25f * static_cast<float>(rank);
}

Result run(std::size_t ranks, std::size_t count) {
  std::vector<Link> links(ranks);
  Result result = {.values = std::vector(ranks, std::vector<float>(count)),
                   .messages = std::vector<int>(ranks)};
  std::string failure;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(static_cast<int>(r), links);
      for (std::size_t i = 0; i < count; ++i) result.values[r][i] = value_of(r, i);
      std::string problem;
      try {
        all_reduce(rank, result.values[r]);
      } catch (const std::exception& error) {
        problem = error.what();
      }
      const std::lock_guard lock(mutex);
      if (failure.empty()) failure = problem;
      result.messages[r] = rank.messages;
      result.bytes += rank.bytes;
    });
  }
  threads.clear();
  if (!failure.empty()) throw std::runtime_error(failure);
  return result;
}

// Ranks and values: parts of equal and of unequal length, and more ranks than values.
constexpr std::size_t kCases[][2] = {{1, 5}, {2, 8}, {4, 64}, {3, 10}, {7, 100}, {5, 3}};

std::string wrong_sums() {
  for (const auto& [ranks, count] : kCases) {
    const Result result = run(ranks, count);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        float sum = 0.0f;
        for (std::size_t q = 0; q < ranks; ++q) sum += value_of(q, i);
        const float found = result.values[r][i];
        if (found == sum) continue;
        const char* const idea =
            found == value_of(r, i) ? "its sum never came back to this rank"
            : std::abs(found) > std::abs(sum)
                ? "a contribution is added twice, or a sum is added where it should be copied"
                : "some contributions are missing";
        return fmt::format("{} ranks, {} values: value {} of rank {} is {} instead of {}: {}",
                           ranks, count, i, r, found, sum, idea);
      }
    }
  }
  return "";
}

std::string wrong_bytes() {
  for (const auto& [ranks, count] : kCases) {
    const std::size_t expected = 2 * (ranks - 1) * count * sizeof(float);
    const std::size_t bytes = run(ranks, count).bytes;
    if (bytes == expected) continue;
    return fmt::format(
        "{} ranks send {} bytes for {} values, and a ring needs {}: a message has "
        "one part, not all values",
        ranks, bytes, count, expected);
  }
  return "";
}

std::string wrong_messages() {
  for (const auto& [ranks, count] : kCases) {
    const Result result = run(ranks, count);
    for (const int messages : result.messages) {
      if (messages == 2 * (static_cast<int>(ranks) - 1)) continue;
      return fmt::format(
          "a rank of {} sends {} messages: a part is at its last rank after how "
          "many rounds?",
          ranks, messages);
    }
  }
  return "";
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera::course;
  Grader grader;
  grader.run("sums", wrong_sums);
  grader.run("bytes", wrong_bytes);
  grader.run("messages", wrong_messages);
  return grader.status();
}
