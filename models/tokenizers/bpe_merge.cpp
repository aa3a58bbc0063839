#include "models/tokenizers/bpe_merge.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace tessera {
namespace {

constexpr std::size_t kShort = 32;
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

/// Looks at every pair for each merge.
void merge_short(const MergeTable& merges, std::vector<std::int32_t>& symbols) {
  constexpr MergeTable::Merge kNoMerge{kNever, -1};
  std::array<MergeTable::Merge, kShort> of_pair;  // of symbols i and i + 1
  const auto look_up = [&](std::size_t i) {
    const auto* merge = merges.find(symbols[i], symbols[i + 1]);
    of_pair[i] = merge == nullptr ? kNoMerge : *merge;
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) look_up(i);
  while (symbols.size() > 1) {
    const std::size_t pairs = symbols.size() - 1;
    const auto end = of_pair.begin() + static_cast<std::ptrdiff_t>(pairs);
    const auto best =
        std::min_element(of_pair.begin(), end, [](auto a, auto b) { return a.rank < b.rank; });
    if (best->rank == kNever) return;
    const auto i = static_cast<std::size_t>(best - of_pair.begin());
    symbols[i] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    std::copy(best + 1, end, best);
    if (i > 0) look_up(i - 1);
    if (i + 1 < symbols.size()) look_up(i);
  }
}

/// A pair that could merge when it was queued.
struct Candidate {
  std::int32_t rank;
  std::uint32_t left, right;  // places in the list
  std::int32_t left_id, right_id, id;

  bool operator<(const Candidate& other) const {  // the queue's top is its greatest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

/// A doubly linked list of symbols, and a queue of the pairs that may merge.
class LongMerge {
 public:
  LongMerge(const MergeTable& merges, std::vector<std::int32_t>& symbols)
      : merges_(merges), symbols_(symbols), count_(static_cast<std::uint32_t>(symbols.size())) {
    for (std::uint32_t i = 0; i < count_; ++i) {
      before_.push_back(i - 1);  // the first has kEnd
      after_.push_back(i + 1 < count_ ? i + 1 : kEnd);
    }
    for (std::uint32_t i = 0; i + 1 < count_; ++i) queue_pair(i, i + 1);
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate next = queue_.top();
      queue_.pop();
      // An earlier merge may have taken one of the two; it then has another id, or kGone.
      const bool current =
          symbols_[next.left] == next.left_id && symbols_[next.right] == next.right_id;
      if (current && after_[next.left] == next.right) merge(next);
    }
    std::erase(symbols_, kGone);
  }

 private:
  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  static constexpr std::int32_t kGone = -1;

  void queue_pair(std::uint32_t left, std::uint32_t right) {
    const auto* merge = merges_.find(symbols_[left], symbols_[right]);
    if (merge == nullptr) return;
    queue_.push({merge->rank, left, right, symbols_[left], symbols_[right], merge->id});
  }

  void merge(const Candidate& pair) {
    symbols_[pair.left] = pair.id;
    symbols_[pair.right] = kGone;
    const std::uint32_t next = after_[pair.right];
    after_[pair.left] = next;
    if (next != kEnd) {
      before_[next] = pair.left;
      queue_pair(pair.left, next);
    }
    if (before_[pair.left] != kEnd) queue_pair(before_[pair.left], pair.left);
  }

  const MergeTable& merges_;
  std::vector<std::int32_t>& symbols_;
  std::uint32_t count_;
  std::vector<std::uint32_t> before_, after_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void merge_symbols(const MergeTable& merges, std::vector<std::int32_t>& symbols) {
  if (symbols.size() <= kShort) return merge_short(merges, symbols);
  LongMerge(merges, symbols).run();
}

}  // namespace tessera
