// Rotary position embedding, in place.
//
// A block takes a token, or a slice of a token with many heads. A thread takes 16 bytes of the first
// channels of pairs and 16 bytes of the second (device.h).
//
// Traffic: every element of queries and keys read and written once, 4N(Hq + Hkv)D bytes in 16 bits.
// The table's row (4D bytes in f32) is read from memory once per token and from the first cache by
// all of the token's heads.
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/rope/device.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

constexpr const char* kPositionFault =
    "rope: the token at position {} of the batch has a position outside the table";

template <typename T>
struct Arguments {
  T* x;
  std::int64_t batch_stride, token_stride;
  unsigned tokens, heads;
  int half;
  DeviceRotary rotary;
  float sign;  // -1 rotates back
  FaultSlot fault;
};

template <RopePairs pairs, bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads) rope_kernel(Arguments<T> of) {
  gpu::wait_for_launch_ahead();
  constexpr int kPairs = kPairsOf<T>;
  const unsigned n = blockIdx.x, item = static_cast<unsigned>(gpu::item_of_row());
  const unsigned per_head = (of.half + kPairs - 1) / kPairs;
  if (item >= of.heads * per_head) return;
  const unsigned batch = n / of.tokens, token = n % of.tokens;
  const std::int64_t position = of.rotary.position_of(n, static_cast<int>(token));
  if (!of.rotary.has(position)) {
    if (item == 0) gpu::report(of.fault, n);
    return;
  }

  const int first = static_cast<int>(item % per_head) * kPairs;
  T* const head = of.x + batch * of.batch_stride + token * of.token_stride +
                  static_cast<std::int64_t>(item / per_head) * (2 * of.half);
  float a[kPairs], b[kPairs];
  load_pairs<pairs, kAligned>(a, b, head, first, of.half);
  rotate<kAligned>(a, b, of.rotary, position, first, of.half, of.sign);
  store_pairs<pairs, kAligned>(head, a, b, first, of.half);
}

template <RopePairs pairs, typename T>
void turn(const Arguments<T>& of, std::int64_t rows) {
  const bool aligned =
      gpu::is_vectorizable(of.x, of.batch_stride) && gpu::is_vectorizable(of.x, of.token_stride) &&
      gpu::is_vectorizable(of.x, of.half) && gpu::is_vectorizable(of.rotary.cosine, of.half) &&
      gpu::is_vectorizable(of.rotary.sine, of.half);
  const auto [blocks, threads] =
      gpu::row_grid(rows, std::int64_t{of.heads} * ceil_div(of.half, kPairsOf<T>));
  gpu::launch_early(aligned ? rope_kernel<pairs, true, T> : rope_kernel<pairs, false, T>, blocks,
                    threads, 0, gpu::stream(), of);
}

}  // namespace

void rope(const Heads& x, const RopeTable& table, const RopePositions& positions,
          RopeDirection direction) {
  if (x.batch * x.tokens == 0) return;
  gpu::visit(x.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    const Arguments<T> of{.x = x.tensor.data<T>() + x.offset,
                          .batch_stride = x.batch_stride,
                          .token_stride = x.token_stride,
                          .tokens = static_cast<unsigned>(x.tokens),
                          .heads = static_cast<unsigned>(x.heads),
                          .half = static_cast<int>(x.head_size / 2),
                          .rotary = DeviceRotary({table, positions}),
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
