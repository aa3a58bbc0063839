// RMS norm on the GPU: rows in registers, as kernels/cuda/rows.h lays them out.
//
// Memory traffic, for N rows of C elements of b bytes:
//   forward            2 b N C: reads x, writes y       (with a residual 4: x, residual, sum, y)
//   backward           3 b N C: reads x, dy, writes dx  (with dsum 4)
// and the weight, which stays in the caches, 4 N for rstd, and backward's partial sums: 8 C bytes
// for each of at most 528 chunks of rows.
//
// forward    rows in turn, a team each: sum of squares, over the thread's elements and the team, then y.
// backward   one chunk of rows a block, row by row: dx, and the sum dweight, which stays in
//            registers. The last blocks to finish add the chunks' sums.
// both       the next rows come while a team works on this one (kernels/cuda/row_ring.h).
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/row_ring.h"
#include "kernels/rms_norm/op.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

template <typename T>
struct Forward {
  T* y;
  T* sum;  // null without a residual
  float* rstd;
  const T *x, *residual, *weight;
  float epsilon, offset;
  std::int64_t N, C;
  int stages;  // of rings (row_ring.h)
};

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, kRowBlocks<Layout>)
    forward_kernel(Forward<typename Layout::T> p) {
  using T = typename Layout::T;
  const bool one_tile = p.C <= Layout::kTile;
  const std::int64_t teams = static_cast<std::int64_t>(gridDim.x) * Layout::kTeams;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * Layout::kTeams + Layout::team_of_thread();
  RowRing<Layout, 2> rows({p.x, p.residual}, p.C, p.stages, first, teams, p.N);
  for (std::int64_t n = first; n < p.N; n += teams) {
    const std::int64_t row = n * p.C;

    rows.wait(n);
    RowTile<Layout> x;
    float squares = 0.0f;
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      rows.load_sum(x, c, p.sum);
      for_each([&](float x) { squares += x * x; }, x);
    }
    rows.release();
    const float mean_square = team_sum<Layout>(squares) / static_cast<float>(p.C);
    const float rstd = 1.0f / sqrtf(mean_square + p.epsilon);
    if (Layout::is_first_of_team()) p.rstd[n] = rstd;

    const T* const normalized = p.sum != nullptr ? p.sum : p.x;
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      if (!one_tile) x.load(normalized + row + c, p.C - c);
      RowTile<Layout> weight;
      weight.load(p.weight + c, p.C - c);
      map(
          x, [=, offset = p.offset](float x, float w) { return x * rstd * (offset + w); }, x,
          weight);
      x.store(p.y + row + c, p.C - c);
    }
  }
}

template <typename T>
struct Backward {
  T* dx;
  float* lines;  // of partial sums of dweight
  std::int64_t stride;
  const T *dy, *dsum;  // dsum is null without a residual
  const T *x, *weight;
  const float* rstd;
  float offset;
  std::int64_t N, C, rows_per_block;
  int stages;  // of rings (row_ring.h)
  LineSums sums;
};

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, kSummingBlocks<Layout, 1>)
    backward_kernel(Backward<typename Layout::T> p) {
  const std::int64_t begin = blockIdx.x * p.rows_per_block;
  const std::int64_t end = min(begin + p.rows_per_block, p.N);
  const bool one_tile = p.C <= Layout::kTile;
  float* const line = p.lines + blockIdx.x * p.stride;
  ColumnSums<Layout> dweight;
  dweight.clear();

  const std::int64_t first = begin + Layout::team_of_thread();
  RowRing<Layout, 3> rows({p.x, p.dy, p.dsum}, p.C, p.stages, first, Layout::kTeams, end);
  for (std::int64_t n = first; n < end; n += Layout::kTeams) {
    const std::int64_t row = n * p.C;
    const float rstd = p.rstd[n];
    rows.wait(n);
    RowTile<Layout> x, dy, weight;
    float sum = 0.0f;  // of g * xhat
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      rows.load(x, 0, c);
      rows.load(dy, 1, c);
      weight.load(p.weight + c, p.C - c);
      for_each([&](float x, float dy, float w) { sum += dy * (p.offset + w) * (x * rstd); }, x, dy,
               weight);
    }
    const float mean_g_xhat = team_sum<Layout>(sum) / static_cast<float>(p.C);

    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      if (!one_tile) {
        x.load(p.x + row + c, p.C - c);
        dy.load(p.dy + row + c, p.C - c);
        dweight.resume(line + c, p.C - c, n == begin);
      }
      weight.load(p.weight + c, p.C - c);  // from L1; it would take registers during the sum
      const auto differentiate = [=, offset = p.offset](float x, float dy, float w,
                                                        float& dweight) {
        const float xhat = x * rstd;
        const float dx = rstd * (dy * (offset + w) - xhat * mean_g_xhat);
        dweight += dy * xhat;
        return dx;
      };
      map(x, differentiate, x, dy, weight, dweight);  // x becomes dx
      if (p.dsum != nullptr) {
        rows.load(dy, 2, c);
        x.add(dy);
      }
      x.store(p.dx + row + c, p.C - c);
      if (!one_tile) dweight.pause(line + c, p.C - c);
    }
    rows.release();
  }
  if (one_tile) dweight.store(line, p.C);
  p.sums.finish();
}

}  // namespace

void rms_norm_forward(Out y, Out sum, Out rstd, const Tensor& x, const Tensor& residual,
                      const Tensor& weight, float epsilon, float offset) {
  const std::int64_t C = x.size(-1), N = x.numel() / C;
  if (N == 0) return;
  visit_row_layout(x.dtype(), C, {y, sum, x, residual, weight}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const RowRings rings = row_rings<Layout>(C, residual.defined() ? 2 : 1, kRowBlocks<Layout>);
    const Forward<T> p{.y = y.data<T>(),
                       .sum = pointer<T>(sum),
                       .rstd = rstd.data<float>(),
                       .x = x.data<T>(),
                       .residual = pointer<T>(residual),
                       .weight = weight.data<T>(),
                       .epsilon = epsilon,
                       .offset = offset,
                       .N = N,
                       .C = C,
                       .stages = rings.stages};
    launch_early(forward_kernel<Layout>, dim3(ring_blocks<Layout>(rings, N, kRowBlocks<Layout>)),
                 dim3(Layout::kThreads), rings.bytes, stream(), p);
  });
}

void rms_norm_backward(Out dx, Out dweight, const Tensor& dy, const Tensor& dsum, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd, Accumulate accumulate_parameters,
                       float offset) {
  const std::int64_t C = x.size(-1), N = x.numel() / C;
  visit_summing_layout(x.dtype(), C, {dx, dy, dsum, x, weight}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const RowChunks chunks = chunks_for_summing<Layout, 1>(N);
    const PartialLines lines(chunks.count, 1, C);
    const RowSums of_weight{dweight, accumulate_parameters};
    if (N == 0) return sum_no_rows({of_weight});
    const RowRings rings = row_rings<Layout>(C, dsum.defined() ? 3 : 2, kSummingBlocks<Layout, 1>,
                                             ColumnSums<Layout>::kSharedBytes);
    const Backward<T> p{.dx = dx.data<T>(),
                        .lines = lines.data(),
                        .stride = lines.stride,
                        .dy = dy.data<T>(),
                        .dsum = pointer<T>(dsum),
                        .x = x.data<T>(),
                        .weight = weight.data<T>(),
                        .rstd = rstd.data<float>(),
                        .offset = offset,
                        .N = N,
                        .C = C,
                        .rows_per_block = chunks.rows,
                        .stages = rings.stages,
                        .sums = line_sums({of_weight}, lines)};
    launch_early(backward_kernel<Layout>, dim3(static_cast<unsigned>(chunks.count)),
                 dim3(Layout::kThreads), rings.bytes, stream(), p);
  });
}

}  // namespace tessera::cuda
