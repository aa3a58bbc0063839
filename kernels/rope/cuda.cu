// Rotary position embedding, in place.
//
// A block takes a token, or a slice of a token with many heads. A thread takes 16 bytes of the
// first channels of pairs and 16 bytes of the second (8 pairs in 16 bits):
//
//   half_split    | a a a a a a a a ............ | b b b b b b b b ............ |    one head
//                   thread 0        thread 1       thread 0        thread 1
//   interleaved   | a b a b a b a b  a b a b a b a b | ........................ |
//                   thread 0                           thread 1
//
// Traffic: every element of queries and keys read and written once, 4N(Hq + Hkv)D bytes in 16 bits.
// The table's row (4D bytes in f32) is read from memory once per token and from the first cache by
// all of the token's heads.
#include "kernels/cuda/fault.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/rope/op.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

constexpr const char* kPositionFault =
    "rope: the token at position {} of the batch has a position outside the table";

template <typename T>
struct Arguments {
  T* x;
  std::int64_t batch_stride, token_stride;
  unsigned tokens, heads, half;
  const float *cosine, *sine;  // [table_size, half]
  std::int64_t table_size, first_position;
  const std::int32_t* positions;  // [batch, tokens] or null
  float sign;                     // -1 rotates back
  FaultSlot fault;
};

/// The first and second channels of kPairs pairs, from pair `first` of a head with `half` of them.
template <RopePairs pairs, int kPairs, typename T>
__device__ void load_pairs(float (&a)[kPairs], float (&b)[kPairs], const T* head, unsigned first,
                           unsigned half) {
  if constexpr (pairs == RopePairs::half_split) {
    gpu::load_all(a, head + first);
    gpu::load_all(b, head + half + first);
  } else if constexpr (kPairs == 1) {
    a[0] = gpu::load(head[2 * first]);
    b[0] = gpu::load(head[2 * first + 1]);
  } else {
    float both[2 * kPairs];
    gpu::load_all(both, head + 2 * first);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) a[i] = both[2 * i], b[i] = both[2 * i + 1];
  }
}

template <RopePairs pairs, int kPairs, typename T>
__device__ void store_pairs(T* head, const float (&a)[kPairs], const float (&b)[kPairs],
                            unsigned first, unsigned half) {
  if constexpr (pairs == RopePairs::half_split) {
    gpu::store_all(head + first, a);
    gpu::store_all(head + half + first, b);
  } else if constexpr (kPairs == 1) {
    gpu::store(head[2 * first], a[0]);
    gpu::store(head[2 * first + 1], b[0]);
  } else {
    float both[2 * kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) both[2 * i] = a[i], both[2 * i + 1] = b[i];
    gpu::store_all(head + 2 * first, both);
  }
}

template <RopePairs pairs, int kPairs, typename T>
__global__ void __launch_bounds__(kThreads) rope_kernel(Arguments<T> of) {
  const unsigned n = blockIdx.x, item = static_cast<unsigned>(gpu::item_of_row());
  const unsigned per_head = of.half / kPairs;
  if (item >= of.heads * per_head) return;
  const unsigned batch = n / of.tokens, token = n % of.tokens;
  const std::int64_t position =
      of.first_position + (of.positions != nullptr ? of.positions[n] : static_cast<int>(token));
  if (position < 0 || position >= of.table_size) {
    if (item == 0) gpu::report(of.fault, n);
    return;
  }

  const unsigned first = item % per_head * kPairs;
  float a[kPairs], b[kPairs], c[kPairs], s[kPairs];
  gpu::load_all(c, of.cosine + position * of.half + first);
  gpu::load_all(s, of.sine + position * of.half + first);
  T* const head = of.x + batch * of.batch_stride + token * of.token_stride +
                  static_cast<std::int64_t>(item / per_head) * (2 * of.half);
  load_pairs<pairs>(a, b, head, first, of.half);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {  // explicit fma: the CPU's bits
    const float sine = of.sign * s[i], turned = fmaf(a[i], c[i], -(b[i] * sine));
    b[i] = fmaf(b[i], c[i], a[i] * sine);
    a[i] = turned;
  }
  store_pairs<pairs>(head, a, b, first, of.half);
}

template <RopePairs pairs, typename T>
void turn(const Arguments<T>& of, std::int64_t rows) {
  constexpr int kPairs = gpu::Vector<T>::kSize;
  const bool vectors =
      gpu::is_vectorizable(of.x, of.batch_stride) && gpu::is_vectorizable(of.x, of.token_stride) &&
      gpu::is_vectorizable(of.x, of.half) && gpu::is_vectorizable(of.cosine, of.half) &&
      gpu::is_vectorizable(of.sine, of.half);
  const auto [blocks, threads] =
      gpu::row_grid(rows, std::int64_t{of.heads} * of.half / (vectors ? kPairs : 1));
  gpu::launch(vectors ? rope_kernel<pairs, kPairs, T> : rope_kernel<pairs, 1, T>, blocks, threads,
              0, gpu::stream(), of);
}

}  // namespace

void rope(const Heads& x, const RopeTable& table, const RopePositions& positions,
          RopeDirection direction) {
  if (x.batch * x.tokens == 0) return;
  gpu::visit(x.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const Arguments<T> of{
        .x = x.tensor.data<T>() + x.offset,
        .batch_stride = x.batch_stride,
        .token_stride = x.token_stride,
        .tokens = static_cast<unsigned>(x.tokens),
        .heads = static_cast<unsigned>(x.heads),
        .half = static_cast<unsigned>(x.head_size / 2),
        .cosine = table.cosine.data<float>(),
        .sine = table.sine.data<float>(),
        .table_size = table.cosine.size(0),
        .first_position = positions.first,
        .positions = positions.each.defined() ? positions.each.data<std::int32_t>() : nullptr,
        .sign = direction == RopeDirection::forward ? 1.0f : -1.0f,
        .fault = fault_slot(current_stream(), kPositionFault)};
    if (table.pairs == RopePairs::half_split) {
      turn<RopePairs::half_split>(of, x.batch * x.tokens);
    } else {
      turn<RopePairs::interleaved>(of, x.batch * x.tokens);
    }
  });
}

}  // namespace tessera::cuda
