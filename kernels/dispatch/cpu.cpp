#include <algorithm>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dispatch/op.h"
#include "kernels/dispatch/rows.h"
#include "runtime/check.h"

namespace tessera::cpu {
namespace {

/// Calls f(n) for every token n, in chunks of about kElementwiseChunk elements of its rows.
template <typename F>
void for_each_token(const Tensor& places, std::int64_t columns, const F& f) {
  const std::int64_t elements = std::max<std::int64_t>(1, columns * places.size(1));
  const std::int64_t chunk = std::max<std::int64_t>(1, kElementwiseChunk / elements);
  parallel_for(places.size(0), chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) f(n);
  });
}

/// Columns summed at a time, in registers and the first-level cache.
constexpr std::int64_t kColumns = 256;

template <typename T>
void combine_token(T* y, const T* x, const Slots<T>& slots, const T* residual, std::int64_t n,
                   std::int64_t columns) {
  compute_t<T> sum[kColumns];
  for (std::int64_t begin = 0; begin < columns; begin += kColumns) {
    const std::int64_t width = std::min(kColumns, columns - begin);
    for (std::int64_t c = 0; c < width; ++c) {
      sum[c] = residual == nullptr ? compute_t<T>(0) : load(residual[n * columns + begin + c]);
    }
    for (std::int64_t s = n * slots.per_token; s < (n + 1) * slots.per_token; ++s) {
      const T* const from = x + slots.place(s) * columns + begin;
      const compute_t<T> weight = slots.weight(s);
      for (std::int64_t c = 0; c < width; ++c) sum[c] += weight * load(from[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) store(y[n * columns + begin + c], sum[c]);
  }
}

}  // namespace

void dispatch_order(Out places, Out offsets, Out slots, const Tensor& experts) {
  const auto* const ids = experts.data<std::int32_t>();
  const std::int64_t rows = experts.numel(), E = offsets.numel() - 1;
  auto* const first = offsets.data<std::int32_t>();
  auto* const to = places.data<std::int32_t>();
  auto* const back = slots.defined() ? slots.data<std::int32_t>() : nullptr;
  on_one_thread([=] {
    for (std::int64_t i = 0; i < rows; ++i) {
      check(ids[i] >= 0 && ids[i] < E, "dispatch: experts[{}] is {}; there are experts [0, {})", i,
            ids[i], E);
    }
    std::fill_n(first, E + 1, 0);
    for (std::int64_t i = 0; i < rows; ++i) ++first[ids[i] + 1];
    for (std::int64_t e = 0; e < E; ++e) first[e + 1] += first[e];
    std::vector<std::int32_t> next(first, first + E);
    for (std::int64_t i = 0; i < rows; ++i) {
      to[i] = next[static_cast<std::size_t>(ids[i])]++;
      if (back != nullptr) back[to[i]] = static_cast<std::int32_t>(i);
    }
  });
}

void dispatch(Out y, const Tensor& x, const Tensor& places, const Tensor& weights) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const Slots<T> slots(places, weights);
    const std::int64_t columns = x.size(1);
    for_each_token(places, columns, [&](std::int64_t n) {
      const T* const from = x.data<T>() + n * columns;
      for (std::int64_t s = n * slots.per_token; s < (n + 1) * slots.per_token; ++s) {
        scale_row(y.data<T>() + slots.place(s) * columns, from, slots.weight(s), columns);
      }
    });
  });
}

void combine(Out y, const Tensor& x, const Tensor& places, const Tensor& weights,
             const Tensor& residual) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const Slots<T> slots(places, weights);
    const T* const first = residual.defined() ? residual.data<T>() : nullptr;
    for_each_token(places, x.size(1), [&](std::int64_t n) {
      combine_token(y.data<T>(), x.data<T>(), slots, first, n, x.size(1));
    });
  });
}

void weigh_backward(Out dx, Out dweights, const Tensor& dy, const Tensor& x, const Tensor& places,
                    const Tensor& weights) {
  visit_floating(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    const Slots<T> slots(places, weights);
    const std::int64_t columns = x.size(1);
    for_each_token(places, columns, [&](std::int64_t n) {
      for (std::int64_t s = n * slots.per_token; s < (n + 1) * slots.per_token; ++s) {
        const std::int64_t at = slots.place(s) * columns;
        const T* const from = dy.data<T>() + at;
        store(dweights.data<T>()[s], dot(from, x.data<T>() + at, columns));
        scale_row(dx.data<T>() + at, from, slots.weight(s), columns);
      }
    });
  });
}

}  // namespace tessera::cpu
