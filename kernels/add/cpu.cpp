#include "kernels/add/op.h"
#include "kernels/add/parts.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/multi_tensor.h"

namespace tessera::cpu {
namespace {

template <typename Sum, typename Addend>
void add_to(Sum* __restrict__ sum, const Addend* __restrict__ addend, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(sum[i], load(sum[i]) + load(addend[i]));
}

template <typename Sum, typename Addend>
void add_lists(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  for_each_chunk(sums, kElementwiseChunk, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    add_to(sums[i].data<Sum>() + begin, addends[i].data<Addend>() + begin, end - begin);
  });
}

}  // namespace

void add(Out y, const Tensor& a, const Tensor& b) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    elementwise(
        y.numel(), y.data<T>(), [](C p, C q) { return p + q; }, a.data<T>(), b.data<T>());
  });
}

void add_to(Isa isa, const Rectangle& part, Out y, const Tensor& x) {
  visit_floating(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    T* const sum = y.data<T>();
    elementwise(
        isa, part, y.size(-1), sum, [](C p, C q) { return p + q; }, static_cast<const T*>(sum),
        static_cast<const T*>(x.data<T>()));
  });
}

void add_all(std::span<const Tensor> sums, std::span<const Tensor> addends) {
  visit_floating(addends.front().dtype(), [&](auto type) {
    using T = decltype(type);
    if (sums.front().dtype() == addends.front().dtype()) {
      add_lists<T, T>(sums, addends);
    } else {
      add_lists<float, T>(sums, addends);
    }
  });
}

}  // namespace tessera::cpu
