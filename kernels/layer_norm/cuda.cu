// Layer norm on the GPU: rows in registers, as kernels/cuda/rows.h lays them out.
//
// Memory traffic, for N rows of C elements of b bytes:
//   forward            2 b N C: reads x, writes y       (with a residual 4: x, residual, sum, y)
//   backward           3 b N C: reads x, dy, writes dx  (with dsum 4)
// and the weight and bias, which stay in the caches, 8 N for the statistics, and backward's partial
// sums: 16 C bytes, with dx_total 24 C, for each of at most 528 chunks of rows.
//
// forward    rows in turn, a team each: mean, then variance about it (both from registers: the second
//            pass reads no memory), then y.
// backward   one chunk of rows a block, row by row: dx, in registers the sums dweight and dbias,
//            and in shared memory dx_total. The last blocks to finish add the chunks' sums.
// both       the next rows come while a team works on this one (kernels/cuda/row_ring.h).
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/row_ring.h"
#include "kernels/layer_norm/op.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

template <typename T>
struct Forward {
  T *y, *sum;  // `sum` is null without a residual
  float *mean, *rstd;
  const T *x, *residual, *weight, *bias;
  float epsilon;
  std::int64_t N, C;
  int stages;  // of rings (row_ring.h)
};

/// The sum of (x - mean)^2 over the thread's elements of a tile, of a row with `columns` columns
/// left. Columns behind the row's end hold 0, which is not the mean: they are left out.
template <typename Layout>
__device__ float squares_about(float mean, const RowTile<Layout>& tile, std::int64_t columns) {
  float squares = 0.0f;
  const auto add_square = [&](int column, float x) {
    const float centered = column < columns ? x - mean : 0.0f;
    squares += centered * centered;
  };
  for_each_column<Layout>(add_square, tile);
  return squares;
}

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
    const T* const normalized = (p.sum != nullptr ? p.sum : p.x) + row;

    rows.wait(n);
    RowTile<Layout> x;
    float total = 0.0f;
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      rows.load_sum(x, c, p.sum);
      total += sum(x);
    }
    rows.release();
    const float mean = team_sum<Layout>(total) / static_cast<float>(p.C);

    float squares = 0.0f;
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      if (!one_tile) x.load(normalized + c, p.C - c);
      squares += squares_about(mean, x, p.C - c);
    }
    const float variance = team_sum<Layout>(squares) / static_cast<float>(p.C);
    const float rstd = 1.0f / sqrtf(variance + p.epsilon);
    if (Layout::is_first_of_team()) {
      p.mean[n] = mean;
      p.rstd[n] = rstd;
    }

    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      if (!one_tile) x.load(normalized + c, p.C - c);
      RowTile<Layout> weight, bias;
      weight.load(p.weight + c, p.C - c);
      bias.load(p.bias + c, p.C - c);
      const auto normalize = [=](float x, float w, float b) { return (x - mean) * rstd * w + b; };
      map(x, normalize, x, weight, bias);
      x.store(p.y + row + c, p.C - c);
    }
  }
}

template <typename T>
struct Backward {
  T* dx;
  float* lines;  // of partial sums: dweight's, `stride` after it dbias's, then dx_total's
  std::int64_t stride;
  bool totals;         // whether dx_total is wanted
  const T *dy, *dsum;  // dsum is null without a residual
  const T *x, *weight;
  const float *mean, *rstd;
  std::int64_t N, C, rows_per_block;
  int stages;  // of rings (row_ring.h)
  LineSums sums;
};

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, kSummingBlocks<Layout, kSumsOfLayerNorm>)
    backward_kernel(Backward<typename Layout::T> p) {
  const std::int64_t begin = blockIdx.x * p.rows_per_block;
  const std::int64_t end = min(begin + p.rows_per_block, p.N);
  const bool one_tile = p.C <= Layout::kTile;
  float* const weight_line = p.lines + blockIdx.x * p.sums.per_chunk * p.stride;
  float* const bias_line = weight_line + p.stride;
  float* const total_line = bias_line + p.stride;
  ColumnSums<Layout> dweight, dbias;
  const SharedColumnSums<Layout> dx_total;
  dweight.clear();
  dbias.clear();
  if (p.totals) dx_total.clear();

  const std::int64_t first = begin + Layout::team_of_thread();
  RowRing<Layout, 3> rows({p.x, p.dy, p.dsum}, p.C, p.stages, first, Layout::kTeams, end);
  for (std::int64_t n = first; n < end; n += Layout::kTeams) {
    const std::int64_t row = n * p.C;
    const float mean = p.mean[n], rstd = p.rstd[n];
    rows.wait(n);
    RowTile<Layout> x, dy, weight;
    float sums[2] = {0.0f, 0.0f};  // of g and of g * xhat
    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      rows.load(x, 0, c);
      rows.load(dy, 1, c);
      weight.load(p.weight + c, p.C - c);
      const auto add_g = [&](float x, float dy, float w) {
        const float g = dy * w;
        sums[0] += g;
        sums[1] += g * ((x - mean) * rstd);
      };
      for_each(add_g, x, dy, weight);
    }
    team_sum<Layout>(sums);
    const float mean_g = sums[0] / static_cast<float>(p.C);
    const float mean_g_xhat = sums[1] / static_cast<float>(p.C);

    for (std::int64_t c = 0; c < p.C; c += Layout::kTile) {
      if (!one_tile) {
        x.load(p.x + row + c, p.C - c);
        dy.load(p.dy + row + c, p.C - c);
        dweight.resume(weight_line + c, p.C - c, n == begin);
        dbias.resume(bias_line + c, p.C - c, n == begin);
      }
      weight.load(p.weight + c, p.C - c);  // from L1; it would take registers during the sums
      const auto differentiate = [=](float x, float dy, float w, float& dweight, float& dbias) {
        const float xhat = (x - mean) * rstd;
        const float g = dy * w;
        const float dx = rstd * (g - mean_g - xhat * mean_g_xhat);
        dweight += dy * xhat;
        dbias += dy;
        return dx;
      };
      map(x, differentiate, x, dy, weight, dweight, dbias);  // x becomes dx
      if (p.dsum != nullptr) {
        rows.load(dy, 2, c);
        x.add(dy);
      }
      x.store(p.dx + row + c, p.C - c);
      if (!one_tile) {
        dweight.pause(weight_line + c, p.C - c);
        dbias.pause(bias_line + c, p.C - c);
      }
      if (!p.totals) continue;
      if (one_tile) {
        dx_total.add(x);
      } else {
        add_to_line(total_line + c, x, p.C - c, n == begin);
      }
    }
    rows.release();
  }
  if (one_tile) {
    dweight.store(weight_line, p.C);
    dbias.store(bias_line, p.C);
    if (p.totals) dx_total.store(total_line, p.C);
  }
  p.sums.finish();
}

}  // namespace

void layer_norm_forward(Out y, Out sum, Out mean, Out rstd, const Tensor& x, const Tensor& residual,
                        const Tensor& weight, const Tensor& bias, float epsilon) {
  const std::int64_t C = x.size(-1), N = x.numel() / C;
  if (N == 0) return;
  visit_row_layout(x.dtype(), C, {y, sum, x, residual, weight, bias}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const RowRings rings = row_rings<Layout>(C, residual.defined() ? 2 : 1, kRowBlocks<Layout>);
    const Forward<T> p{.y = y.data<T>(),
                       .sum = pointer<T>(sum),
                       .mean = mean.data<float>(),
                       .rstd = rstd.data<float>(),
                       .x = x.data<T>(),
                       .residual = pointer<T>(residual),
                       .weight = weight.data<T>(),
                       .bias = bias.data<T>(),
                       .epsilon = epsilon,
                       .N = N,
                       .C = C,
                       .stages = rings.stages};
    launch_early(forward_kernel<Layout>, dim3(ring_blocks<Layout>(rings, N, kRowBlocks<Layout>)),
                 dim3(Layout::kThreads), rings.bytes, stream(), p);
  });
}

void layer_norm_backward(Out dx, Out dx_total, Out dweight, Out dbias, const Tensor& dy,
                         const Tensor& dsum, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, Accumulate accumulate_parameters) {
  const std::int64_t C = x.size(-1), N = x.numel() / C;
  const std::initializer_list<RowSums> sums = {
      {dweight, accumulate_parameters}, {dbias, accumulate_parameters}, {dx_total, Accumulate::no}};
  if (N == 0) return sum_no_rows(sums);
  visit_summing_layout(x.dtype(), C, {dx, dy, dsum, x, weight}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const RowChunks chunks = chunks_for_summing<Layout, kSumsOfLayerNorm>(N);
    const PartialLines lines(chunks.count, dx_total.defined() ? 3 : 2, C);
    const RowRings rings =
        row_rings<Layout>(C, dsum.defined() ? 3 : 2, kSummingBlocks<Layout, kSumsOfLayerNorm>,
                          SharedColumnSums<Layout>::kSharedBytes);
    const Backward<T> p{.dx = dx.data<T>(),
                        .lines = lines.data(),
                        .stride = lines.stride,
                        .totals = dx_total.defined(),
                        .dy = dy.data<T>(),
                        .dsum = pointer<T>(dsum),
                        .x = x.data<T>(),
                        .weight = weight.data<T>(),
                        .mean = mean.data<float>(),
                        .rstd = rstd.data<float>(),
                        .N = N,
                        .C = C,
                        .rows_per_block = chunks.rows,
                        .stages = rings.stages,
                        .sums = line_sums(sums, lines)};
    launch_early(backward_kernel<Layout>, dim3(static_cast<unsigned>(chunks.count)),
                 dim3(Layout::kThreads), rings.bytes, stream(), p);
  });
}

}  // namespace tessera::cuda
