// reduce_shares and gather_shares: sums and bytes of every grid of nodes, by messages in memory.
#include "sharding/comm/tree_exchange.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "sharding/comm/threads/threads.h"
#include "tests/sharding/communicator_checks.h"
#include "tests/support/rank.h"

namespace tessera {

using test::Findings;
using test::Floats;

namespace {

/// Messages on their way between ranks that are threads, and the bytes that they carry.
class Post {
 public:
  explicit Post(int ranks_per_node) : ranks_per_node_(ranks_per_node) {}

  void send(int from, int to, const Tensor& tensor) {
    bytes += static_cast<std::int64_t>(tensor.bytes());
    if (from / ranks_per_node_ != to / ranks_per_node_) {
      bytes_between_nodes += static_cast<std::int64_t>(tensor.bytes());
    }
    const std::lock_guard lock(mutex_);
    boxes_[{from, to}].push_back(tensor.clone());
    changed_.notify_all();
  }
  void receive(int from, int to, const Tensor& tensor) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty(); });
    tensor.copy_from(box.front());
    box.pop_front();
  }

  std::atomic<std::int64_t> bytes = 0;
  std::atomic<std::int64_t> bytes_between_nodes = 0;

 private:
  const int ranks_per_node_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Tensor>> boxes_;
};

class PostTransport final : public Transport {
 public:
  PostTransport(Post& post, int rank) : post_(post), rank_(rank) {}
  void start(int slot, const Messages& messages) override {
    for (const Message& one : messages.sent) post_.send(rank_, one.peer, one.tensor);
    received_[static_cast<std::size_t>(slot)] = messages.received;
  }
  void finish(int slot) override {
    for (const Message& one : received_[static_cast<std::size_t>(slot)]) {
      post_.receive(one.peer, rank_, one.tensor);
    }
  }

 private:
  Post& post_;
  int rank_;
  std::vector<Message> received_[kSlots];
};

struct Outcome {
  std::vector<std::string> wrong;
  std::int64_t bytes = 0;
  std::int64_t bytes_between_nodes = 0;
};

/// An all_reduce of `count` f32 by reduce_shares and gather_shares, against the documented tree.
Outcome all_reduce(int ranks, int ranks_per_node, std::int64_t count, bool halves,
                   std::int64_t staging_bytes) {
  Post post(ranks_per_node);
  Findings findings;
  const Floats expected = test::summed(ranks, count);
  run_ranks({.ranks = ranks, .threads = 1}, [&](Communicator& world) {
    const int rank = world.rank();
    const Tensor x = test::tensor_of(rank, count);
    const Call call{.collective = Collective::all_reduce, .outputs = {x}};
    PostTransport transport(post, rank);
    const auto allocate = [](std::int64_t bytes) { return Tensor::empty({bytes}, DType::u8); };
    reduce_shares(call, NodeGrid::for_reduction(call, rank, ranks, ranks_per_node),
                  {.bytes = staging_bytes, .halves = halves, .allocate = allocate}, transport);
    gather_shares(call, NodeGrid::for_gather(call, rank, ranks, ranks_per_node), transport);
    findings.expect(x.to_vector<float>() == expected, "sums on rank " + std::to_string(rank));
  });
  return {findings.wrong(), post.bytes, post.bytes_between_nodes};
}

}  // namespace

TEST_CASE("two stages give the bits and the bytes of one, and fewer bytes between nodes") {
  for (const auto& [ranks, per_node] : std::vector<std::pair<int, int>>{
           {4, 2}, {6, 2}, {8, 4}, {8, 2}, {12, 4}, {24, 8}, {32, 8}}) {
    CAPTURE(ranks, per_node);
    const std::int64_t share = 10, bytes = 4 * share;
    const Outcome outcome = all_reduce(ranks, per_node, ranks * share, false, 1 << 20);
    CHECK(outcome.wrong == std::vector<std::string>{});
    // Per rank, the formula of docs/communicators.md: N - 1 shares in either half.
    CHECK(outcome.bytes == 2 * ranks * (ranks - 1) * bytes);
    // One share to each other node in either half. Direct sends would be (N - K) shares.
    CHECK(outcome.bytes_between_nodes == 2 * ranks * (ranks / per_node - 1) * bytes);
  }
}

TEST_CASE("counts that ranks do not divide, and small staging buffers, change neither") {
  for (const bool halves : {false, true}) {
    for (const std::int64_t count : {0, 1, 5, 1001, 4096}) {
      for (const std::int64_t staging : {256, 8192}) {
        CAPTURE(halves, count, staging);
        const Outcome outcome = all_reduce(8, 2, count, halves, staging);
        CHECK(outcome.wrong == std::vector<std::string>{});
        // (S - s) + 7 s, over all ranks.
        CHECK(outcome.bytes == (8 * count - count + 7 * count) * 4);
      }
    }
  }
}

TEST_CASE("all ranks count as one node where two stages would give other bits or bytes") {
  const test::Rank rank;
  const Tensor f32 = Tensor::zeros({48}, DType::f32);
  const Tensor bf16 = Tensor::zeros({48}, DType::bf16);
  const auto per_node = [](const Tensor& source, int size, int ranks_per_node) {
    const Call call{.collective = Collective::all_reduce, .outputs = {source}};
    return NodeGrid::for_reduction(call, 0, size, ranks_per_node).per_node;
  };
  CHECK(per_node(f32, 12, 4) == 4);
  CHECK(per_node(f32, 12, 3) == 12);   // 3 ranks are no subtree
  CHECK(per_node(f32, 12, 1) == 12);   // one rank per node, or nodes that differ
  CHECK(per_node(f32, 12, 12) == 12);  // one node
  CHECK(per_node(bf16, 12, 4) == 12);  // sums inside a node would travel in f32
  CHECK(all_reduce(6, 3, 60, false, 1 << 20).wrong == std::vector<std::string>{});
}

TEST_CASE("shares cover all elements in order, and large counts do not overflow") {
  for (const int ranks : {1, 2, 3, 7, 128}) {
    for (const std::int64_t count :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{127}, std::int64_t{1000}, INT64_MAX}) {
      CAPTURE(ranks, count);
      std::int64_t end = 0;
      bool equal = true;
      for (int r = 0; r < ranks; ++r) {
        const ElementRange share = share_of(count, r, ranks);
        const std::int64_t more = share.count() - count / ranks;
        equal &= share.begin == end && (more == 0 || more == 1);
        end = share.end;
      }
      CHECK(equal);
      CHECK(end == count);
    }
  }
}

}  // namespace tessera
