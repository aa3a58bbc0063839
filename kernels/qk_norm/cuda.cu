// QK-norm on the GPU: a head in the registers of a part of a warp.
//
// Memory traffic, for N tokens with A = heads + kv_heads heads of D channels in 16 bits:
//   forward            4 N A D: reads x, writes y
//   backward           6 N A D: reads x and dy, writes dx over dy
// and 4 N A for rstd, 4 D for the token's row of the table (forward), the weights, which stay in the
// caches, and backward's partial sums: 16 D bytes for each of at most 528 chunks of tokens.
//
// forward    As in rope, a block takes a token, or a slice of a token with many heads, and a lane
//            holds 16 bytes of the first channels of pairs and 16 of the second. So neither a pair
//            nor a head leaves its lanes: 8 of a warp's 32 for 128 channels of 16 bits.
// backward   One chunk of tokens a block: its heads of queries, then those of keys. The sums of a
//            kind's dweight stay in registers (kernels/cuda/rows.h, column_sums.h). The last blocks
//            to finish add the chunks' sums.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/qk_norm/op.h"
#include "kernels/rope/device.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

constexpr const char* kPositionFault =
    "qk_norm_forward: the token at position {} of the batch has a position outside the table";

/// The heads of all tokens in packed rows.
template <typename T>
struct PackedHeads {
  T* data;
  std::int64_t row;  // elements
  int head_size;

  PackedHeads(const Tensor& x, std::int64_t head_size)
      : data(x.data<T>()), row(x.size(2)), head_size(static_cast<int>(head_size)) {}
  __device__ T* of(std::int64_t n, int head) const {
    return data + n * row + static_cast<std::int64_t>(head) * head_size;
  }
  /// Whether all heads can be read in vectors, also if they are cut in `parts`.
  bool is_aligned(int parts) const {
    return is_vectorizable(data, row) && head_size % parts == 0 &&
           is_vectorizable(data, head_size / parts);
  }
};

template <typename T>
struct Forward {
  PackedHeads<T> y, x;
  float* rstd;
  const T* weight;
  DeviceRotary rotary;
  int tokens, heads, queries;  // of a batch element; of a token; of these, those of queries
  int lanes;                   // of a head, a power of two
  float epsilon, offset;
  FaultSlot fault;
};

template <RopePairs pairs, bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T> p) {
  wait_for_launch_ahead();
  constexpr int kPairs = kPairsOf<T>;
  const std::int64_t n = blockIdx.x;
  const std::int64_t position =
      p.rotary.position_of(n, static_cast<int>(blockIdx.x % static_cast<unsigned>(p.tokens)));
  if (!p.rotary.has(position)) {
    if (item_of_row() == 0) report(p.fault, n);
    return;
  }
  const int item = static_cast<int>(item_of_row());
  const int head = item / p.lanes, lane = item % p.lanes, first = lane * kPairs;
  const int size = p.x.head_size;
  const int half = head < p.heads ? size / 2 : 0;  // lanes without a head read 0 and write nothing

  float a[kPairs], b[kPairs];
  load_pairs<pairs, kAligned>(a, b, p.x.of(n, head), first, half);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) squares += a[i] * a[i] + b[i] * b[i];
  const float mean_square = warp_reduce<Sum>(squares, p.lanes) / static_cast<float>(size);
  const float rstd = 1.0f / sqrtf(mean_square + p.epsilon);
  if (half == 0) return;
  if (lane == 0) p.rstd[n * p.heads + head] = rstd;

  float weight_a[kPairs], weight_b[kPairs];
  load_pairs<pairs, kAligned>(weight_a, weight_b, p.weight + (head < p.queries ? 0 : size), first,
                              half);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    a[i] = a[i] * rstd * (p.offset + weight_a[i]);
    b[i] = b[i] * rstd * (p.offset + weight_b[i]);
  }
  rotate<kAligned>(a, b, p.rotary, position, first, half, 1.0f);
  store_pairs<pairs, kAligned>(p.y.of(n, head), a, b, first, half);
}

template <RopePairs pairs, typename T>
void launch_forward(const Forward<T>& p, std::int64_t rows) {
  const int half = p.x.head_size / 2;
  const bool aligned = p.x.is_aligned(2) && p.y.is_aligned(2) && is_vectorizable(p.weight, half) &&
                       is_vectorizable(p.rotary.cosine, half) &&
                       is_vectorizable(p.rotary.sine, half);
  const auto [blocks, threads] = row_grid(rows, std::int64_t{p.heads} * p.lanes);
  launch_early(aligned ? forward_kernel<pairs, true, T> : forward_kernel<pairs, false, T>, blocks,
               threads, 0, stream(), p);
}

template <typename T>
struct Backward {
  PackedHeads<T> dx, x;  // dx holds dy
  const T* weight;
  const float* rstd;
  float offset;
  float* lines;  // of partial sums of dweight, two for each chunk
  std::int64_t stride;
  std::int64_t N, tokens_per_block;
  int heads;
  int first[2], count[2];  // heads of queries, and of keys
  LineSums sums;
};

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, kSummingBlocks<Layout, 1>)
    backward_kernel(Backward<typename Layout::T> p) {
  wait_for_launch_ahead();
  const std::int64_t begin = blockIdx.x * p.tokens_per_block;
  const auto tokens = static_cast<unsigned>(min(p.tokens_per_block, p.N - begin));
  const int size = p.x.head_size;
  for (int kind = 0; kind < 2; ++kind) {  // queries, keys
    const int first_head = p.first[kind];
    const auto heads = static_cast<unsigned>(p.count[kind]);
    RowTile<Layout> weight;
    weight.load(p.weight + kind * size, size);
    ColumnSums<Layout> dweight;
    dweight.clear();
    for (unsigned first = 0; first < tokens * heads; first += Layout::kTeams) {
      // All lanes of a warp take part in the sums. A team behind the last row reads and adds 0.
      const unsigned row = first + Layout::team_of_thread();
      const int columns = row < tokens * heads ? size : 0;
      const std::int64_t n = begin + row / heads;
      const int head = first_head + static_cast<int>(row % heads);
      const float rstd = columns > 0 ? p.rstd[n * p.heads + head] : 0.0f;
      RowTile<Layout> x, dy;
      x.load(p.x.of(n, head), columns);
      dy.load(p.dx.of(n, head), columns);
      float sum = 0.0f;  // of g * xhat
      for_each([&](float x, float dy, float w) { sum += dy * (p.offset + w) * (x * rstd); }, x, dy,
               weight);
      const float mean_g_xhat = team_sum<Layout>(sum) / static_cast<float>(size);
      const auto differentiate = [=, offset = p.offset](float x, float dy, float w,
                                                        float& dweight) {
        const float xhat = x * rstd;
        dweight += dy * xhat;
        return rstd * (dy * (offset + w) - xhat * mean_g_xhat);
      };
      map(x, differentiate, x, dy, weight, dweight);  // x becomes dx
      x.store(p.dx.of(n, head), columns);
    }
    dweight.store(p.lines + (2 * blockIdx.x + kind) * p.stride, size);
  }
  p.sums.finish();
}

/// Calls f(layout) with the smallest of these teams that holds a head, with 8 elements a thread:
/// 8, 16 or 32 threads for up to 64, 128 or 256 channels.
template <typename T, typename F>
void visit_head_layout(int head_size, bool aligned, F&& f) {
  const auto visit_team = [&](auto is_aligned) {
    constexpr bool kAligned = decltype(is_aligned)::value;
    if (head_size <= 64) return f(RowLayout<T, 8, 8, kAligned>{});
    if (head_size <= 128) return f(RowLayout<T, 16, 8, kAligned>{});
    static_assert(qk_norm::kMostChannels == 32 * 8);
    return f(RowLayout<T, 32, 8, kAligned>{});
  };
  aligned ? visit_team(std::true_type{}) : visit_team(std::false_type{});
}

}  // namespace

void qk_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, const Rotary& rotary,
                     std::int64_t heads, std::int64_t kv_heads, float epsilon, float offset) {
  const std::int64_t N = x.size(0) * x.size(1), D = weight.numel() / 2;
  if (N == 0) return;
  visit(x.dtype(), [&](auto type) {
    using T = decltype(type);
    int lanes = 1;
    while (lanes * kPairsOf<T> < D / 2) lanes *= 2;
    const Forward<T> p{.y = {y, D},
                       .x = {x, D},
                       .rstd = rstd.data<float>(),
                       .weight = weight.data<T>(),
                       .rotary = DeviceRotary(rotary),
                       .tokens = static_cast<int>(x.size(1)),
                       .heads = static_cast<int>(heads + kv_heads),
                       .queries = static_cast<int>(heads),
                       .lanes = lanes,
                       .epsilon = epsilon,
                       .offset = offset,
                       .fault = fault_slot(current_stream(), kPositionFault)};
    rotary.table.pairs == RopePairs::half_split ? launch_forward<RopePairs::half_split>(p, N)
                                                : launch_forward<RopePairs::interleaved>(p, N);
  });
}

void qk_norm_backward(Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                      const Tensor& rstd, std::int64_t heads, std::int64_t kv_heads,
                      Accumulate accumulate_parameters, const HeadGroup& group, float offset) {
  const std::int64_t N = x.size(0) * x.size(1), D = weight.numel() / 2;
  const auto of_kind = [&](std::int64_t kind) -> RowSums {
    return {dweight.defined() ? dweight.slice(kind * D, (kind + 1) * D) : dweight,
            accumulate_parameters};
  };
  const std::initializer_list<RowSums> sums = {of_kind(0), of_kind(1)};
  const auto queries = static_cast<int>(heads / group.count);
  const auto keys = static_cast<int>(kv_heads / group.count);
  const auto number = static_cast<int>(group.number);
  visit(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const PackedHeads<T> to(dx, D), from(x, D);
    const bool aligned =
        to.is_aligned(1) && from.is_aligned(1) && is_vectorizable(weight.data<T>(), D);
    visit_head_layout<T>(from.head_size, aligned, [&](auto layout) {
      using Layout = decltype(layout);
      const RowChunks chunks = RowChunks::cut(
          N, kReferenceMultiprocessors * summing_blocks<Layout, 1>(), /*fewest_rows=*/1);
      const PartialLines lines(chunks.count, 2, D);
      if (N == 0) return sum_no_rows(sums);
      const Backward<T> p{.dx = to,
                          .x = from,
                          .weight = weight.data<T>(),
                          .rstd = rstd.data<float>(),
                          .offset = offset,
                          .lines = lines.data(),
                          .stride = lines.stride,
                          .N = N,
                          .tokens_per_block = chunks.rows,
                          .heads = static_cast<int>(heads + kv_heads),
                          .first = {number * queries, static_cast<int>(heads) + number * keys},
                          .count = {queries, keys},
                          .sums = line_sums(sums, lines)};
      launch_early(backward_kernel<Layout>, dim3(static_cast<unsigned>(chunks.count)),
                   dim3(Layout::kThreads), 0, stream(), p);
    });
  });
}

}  // namespace tessera::cuda
