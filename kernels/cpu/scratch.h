// Scratch memory for the bodies of a parallel loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <vector>

#include "runtime/context.h"
#include "runtime/integer.h"
#include "runtime/tensor.h"

namespace tessera::cpu {

/// One piece of workspace for each loop body that can run at the same time: one per thread, or one
/// per task if there are fewer tasks. The pool is made before the loop. A body borrows a piece,
/// with arbitrary contents.
template <typename T>
class ScratchPool {
 public:
  ScratchPool(std::int64_t elements, std::int64_t tasks) {
    const CategoryScope scope(Category::workspace);
    const auto pieces = std::min<std::int64_t>(tasks, context().threads().size());
    memory_ = Tensor::empty({pieces, elements}, dtype_of<T>);
    free_.resize(static_cast<std::size_t>(pieces));
    std::iota(free_.begin(), free_.end(), std::int64_t{0});
  }

  class Piece {
   public:
    explicit Piece(ScratchPool& pool) : pool_(pool), index_(pool.take()) {}
    ~Piece() { pool_.give_back(index_); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;

    T* data() const { return pool_.memory_.template data<T>() + index_ * pool_.memory_.size(1); }

   private:
    ScratchPool& pool_;
    std::int64_t index_;
  };

 private:
  std::int64_t take() {
    const std::lock_guard lock(mutex_);
    const std::int64_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void give_back(std::int64_t index) {
    const std::lock_guard lock(mutex_);
    free_.push_back(index);
  }

  Tensor memory_;
  std::mutex mutex_;
  std::vector<std::int64_t> free_;
};

/// Cuts one piece of scratch into arrays, each starting on a cache line.
template <typename T>
class ScratchCutter {
 public:
  explicit ScratchCutter(T* data) : next_(data) {}
  T* take(std::int64_t elements) {
    T* const taken = next_;
    next_ += aligned(elements);
    return taken;
  }
  /// Elements that an array of this size takes, in whole cache lines.
  static constexpr std::int64_t aligned(std::int64_t elements) {
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
    return round_up(elements, kLine);
  }

 private:
  T* next_;
};

}  // namespace tessera::cpu
