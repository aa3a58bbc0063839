// Elements: which elements of a tensor a part of it has.
//
// A part is a list of runs of neighbours at equal distances, as the columns of a matrix are that one
// of several ranks holds. These are the middle two of six columns:
//
//   tensor   . . 2 3 . .  . . 8 9 . .  . . 14 15 . .       first 2, run 2, stride 6
//   part     2 3 8 9 14 15
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace tessera {

struct Elements {
  /// The tensor's element where the first run begins.
  std::int64_t first = 0;
  /// Elements of a run, and from the beginning of one run to that of the next.
  std::int64_t run = std::numeric_limits<std::int64_t>::max();
  std::int64_t stride = 0;
  /// The part begins so many elements after the first run does.
  std::int64_t skip = 0;

  /// The part from its element `count` on.
  Elements from(std::int64_t count) const { return {first, run, stride, skip + count}; }

  /// f(element, offset, n) for the runs of the part's first `count` elements: n elements of the tensor
  /// from `element` on are those of the part from `offset` on.
  template <typename F>
  void for_each_run(std::int64_t count, const F& f) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t at = skip + done;
      const std::int64_t n = std::min(count - done, run - at % run);
      f(first + at / run * stride + at % run, done, n);
      done += n;
    }
  }
};

}  // namespace tessera
