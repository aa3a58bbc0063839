// Bias on the GPU.
//
// forward reads and writes y once. A block takes a stripe of columns, one 16-byte vector for each
// lane of a warp, and a chunk of rows. It keeps its part of the bias in registers, and its eight
// warps take the rows in turn:
//
//             stripe 0    stripe 1    ...
//   chunk 0   block 0     block 1             warp 0: rows 0, 8, ...   warp 1: rows 1, 9, ...
//   chunk 1   ...
//
// backward reads dy once. A block takes a chunk of whole rows and adds them in registers, as the
// backward pass of layer norm does (layer_norm/cuda.cu). So the sum of dx's rows that comes from there has
// the same bits. The last blocks to finish add the chunks' sums.
#include "kernels/bias/op.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/early_launch.h"

namespace tessera::cuda {
namespace {

using namespace gpu;

struct Grid {
  std::int64_t N, C;
  std::int64_t stripes;
  RowChunks chunks;

  Grid(const Tensor& matrix, std::int64_t stripe, std::int64_t most_blocks)
      : N(matrix.numel() / matrix.size(-1)),
        C(matrix.size(-1)),
        stripes(ceil_div(C, stripe)),
        chunks(RowChunks::cut(N, ceil_div(most_blocks, stripes), /*fewest_rows=*/32)) {}

  dim3 blocks() const { return dim3(static_cast<unsigned>(stripes * chunks.count)); }
};

/// A block's part of the matrix.
struct Part {
  std::int64_t column, columns;  // the stripe's first column; columns left in the row from there
  std::int64_t chunk, begin, end;

  __device__ Part(const Grid& grid, int stripe)
      : column(blockIdx.x % grid.stripes * stripe),
        columns(grid.C - column),
        chunk(blockIdx.x / grid.stripes),
        begin(chunk * grid.chunks.rows),
        end(min(begin + grid.chunks.rows, grid.N)) {}
};

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads)
    forward_kernel(typename Layout::T* y, const typename Layout::T* bias, Grid grid) {
  wait_for_launch_ahead();
  const Part part(grid, Layout::kTile);
  RowTile<Layout> added;
  added.load(bias + part.column, part.columns);
  for (std::int64_t n = part.begin + Layout::team_of_thread(); n < part.end; n += Layout::kTeams) {
    typename Layout::T* const row = y + n * grid.C + part.column;
    RowTile<Layout> tile;
    tile.load(row, part.columns);
    tile.add(added);
    tile.store(row, part.columns);
  }
}

template <typename Layout>
__global__ void __launch_bounds__(Layout::kThreads, kSummingBlocks<Layout, kSumsOfLayerNorm>)
    backward_kernel(const typename Layout::T* dy, std::int64_t N, std::int64_t rows_per_block,
                    LineSums sums) {
  wait_for_launch_ahead();
  const std::int64_t C = sums.columns, begin = blockIdx.x * rows_per_block;
  const std::int64_t end = min(begin + rows_per_block, N);
  float* const line = sums.lines + blockIdx.x * sums.stride;
  for (std::int64_t c = 0; c < C; c += Layout::kTile) {
    ColumnSums<Layout> of_tile;
    of_tile.clear();
#pragma unroll 4
    for (std::int64_t n = begin + Layout::team_of_thread(); n < end; n += Layout::kTeams) {
      RowTile<Layout> tile;
      tile.load(dy + n * C + c, C - c);
      for_each([](float x, float& sum) { sum += x; }, tile, of_tile);
    }
    of_tile.store(line + c, C - c);
  }
  sums.finish();
}

}  // namespace

void bias_forward(Out y, const Tensor& bias) {
  if (y.numel() == 0) return;
  visit_stripe_layout(y.dtype(), y.size(-1), {y, bias}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const Grid grid(y, Layout::kTile, /*most_blocks=*/1 << 16);
    launch_early(forward_kernel<Layout>, grid.blocks(), dim3(Layout::kThreads), 0, stream(),
                 y.data<T>(), bias.data<T>(), grid);
  });
}

void bias_backward(Out dbias, const Tensor& dy, Accumulate accumulate) {
  if (dbias.numel() == 0) return;
  const std::int64_t C = dy.size(-1), N = dy.numel() / C;
  if (N == 0) return sum_no_rows({{dbias, accumulate}});
  visit_summing_layout(dy.dtype(), C, {dy}, [&](auto layout) {
    using Layout = decltype(layout);
    using T = typename Layout::T;
    const RowChunks chunks = chunks_for_summing<Layout, kSumsOfLayerNorm>(N);
    const PartialLines lines(chunks.count, 1, C);
    launch_early(backward_kernel<Layout>, dim3(static_cast<unsigned>(chunks.count)),
                 dim3(Layout::kThreads), 0, stream(), dy.data<T>(), N, chunks.rows,
                 line_sums({{dbias, accumulate}}, lines));
  });
}

}  // namespace tessera::cuda
