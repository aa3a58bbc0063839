// Embedding.
//
// Forward gathers rows: a thread takes 16 bytes, a block a slice of one row. Traffic: 4NC bytes in
// 16 bits, less if rows repeat and L2 still has them.
//
// Backward sorts pairs (id, position), so that the occurrences of an id are neighbours in order of
// position. Then every sorted place i gets the blocks of one row. Most of these blocks find at once
// that no run begins at i:
//
//   sorted ids      3  3  3  7  9  9  9  9 ... 9  9 ... 9  9 ...
//   runs            |-------||-||--- 64 ------||--- 64 --||-------- the rest ---
//   blocks at i     sum  .  . sum sum  .  .  .  sum  .  .  sum  .  .
//
// A block adds its run's rows in order, with the loads of the next rows in flight. If an id has one
// run, its block writes dtable. If it has several, each block writes its sum to workspace (f32, at
// row i / 64: the runs of such an id begin at least 64 apart, so no two share a row), and a second
// kernel adds the sums in order. Traffic: dy read once, 2NC bytes in 16 bits; dtable's rows with
// ids written, and read if accumulating; all of dtable zeroed before if not; the sort's 24 bytes
// per token and pass, 2 or 3 passes.
#include <bit>

#include "kernels/cuda/fault.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/radix_sort.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_grid.h"
#include "kernels/embedding/op.h"
#include "runtime/category.h"

namespace tessera::cuda {
namespace {

using gpu::kThreads;

constexpr std::int64_t kRun = kEmbeddingRun;

FaultSlot id_fault() {
  return fault_slot(current_stream(), "embedding: the id at position {} is not a row of the table");
}

/// The rows [first, first + rows) of a table of `all` rows.
struct Rows {
  std::int64_t first, rows, all;

  Rows(const Tensor& table, const TablePart& part)
      : first(part.first), rows(table.size(0)), all(part.rows_of_all(table)) {}
  __device__ bool has(std::int64_t id) const { return id >= first && id < first + rows; }
};

/// Unit: 16 bytes, or one element if rows are not aligned to 16 bytes.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Unit* y, const Unit* table, const std::int32_t* ids, Rows rows,
                   std::int64_t units, FaultSlot fault) {
  const std::int64_t n = blockIdx.x, item = gpu::item_of_row();
  if (item >= units) return;
  const std::int64_t id = ids[n];
  if (id < 0 || id >= rows.all) {
    if (item == 0) gpu::report(fault, n);
    return;
  }
  y[n * units + item] = rows.has(id) ? table[(id - rows.first) * units + item] : Unit{};
}

template <typename Unit>
void gather(Out y, const Tensor& table, const Tensor& ids, const TablePart& part) {
  const std::int64_t row_bytes = y.size(1) * static_cast<std::int64_t>(size_of(y.dtype()));
  const std::int64_t units = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
  const auto [blocks, threads] = gpu::row_grid(y.size(0), units);
  gpu::launch(forward_kernel<Unit>, blocks, threads, 0, gpu::stream(),
              reinterpret_cast<Unit*>(y.raw()), reinterpret_cast<const Unit*>(table.raw()),
              ids.data<std::int32_t>(), Rows(table, part), units, id_fault());
}

/// A token's id and position in one word, which sorts by id.
__device__ inline std::uint64_t occurrence(std::int64_t id, std::int64_t position) {
  return static_cast<std::uint64_t>(id) << 32 | static_cast<std::uint64_t>(position);
}
__device__ inline std::int64_t id_of(std::uint64_t occurrence) {
  return static_cast<std::int64_t>(occurrence >> 32);
}
__device__ inline std::int64_t position_of(std::uint64_t occurrence) {
  return static_cast<std::int64_t>(occurrence & 0xffffffffu);
}

/// Ids become rows of the table. The padding, and ids that are not rows of it, become `rows.rows`, which
/// sorts after all others. `padding_id` is -1 without padding.
__global__ void __launch_bounds__(kThreads)
    occurrences_kernel(std::uint64_t* occurrences, const std::int32_t* ids, std::int64_t tokens,
                       Rows rows, std::int64_t padding_id, FaultSlot fault) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= tokens) return;
  const std::int64_t id = ids[n];
  if (id < 0 || id >= rows.all) gpu::report(fault, n);
  const bool adds = rows.has(id) && id != padding_id;
  occurrences[n] = occurrence(adds ? id - rows.first : rows.rows, n);
}

/// The occurrences of all tokens, sorted by id and then by position.
struct Sorted {
  const std::uint64_t* first;
  std::int64_t tokens;

  __device__ std::int64_t id(std::int64_t i) const { return id_of(first[i]); }
  /// Whether place j exists and has the id of place i.
  __device__ bool same(std::int64_t i, std::int64_t j) const {
    return j >= 0 && j < tokens && id(j) == id(i);
  }
  /// The first place in [low, high) with an id of at least `id`, or high.
  __device__ std::int64_t find(std::int64_t id_wanted, std::int64_t low, std::int64_t high) const {
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (id(middle) < id_wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /// The first place after i with another id, or `high` if that comes first. The warp reads 32
  /// places at once: most ids occur a few times, so one load is enough.
  __device__ std::int64_t end_of_id(std::int64_t i, std::int64_t high) const {
    for (std::int64_t first = i + 1; first < high; first += 32) {
      const std::int64_t place = first + threadIdx.x % 32;
      const unsigned others = __ballot_sync(gpu::kFullWarp, place >= high || id(place) != id(i));
      if (others != 0) return first + __ffs(static_cast<int>(others)) - 1;
    }
    return high;
  }

  /// The end of the run that begins at place i, or i if no run does. The whole block calls it.
  __device__ std::int64_t run_end(std::int64_t i) const {
    if (same(i, i - 1)) {
      // A later run has at least one run before it, and a run's worth of places from i on.
      if (!same(i, i - kRun) || !same(i, i + kRun - 1)) return i;
      if ((i - find(id(i), 0, i)) % kRun != 0) return i;
    }
    if (same(i, i + 2 * kRun - 1)) return i + kRun;
    const std::int64_t last = i + 2 * kRun - 1;
    return end_of_id(i, last < tokens ? last : tokens);
  }
};

/// Arguments that the two kernels of backward share. A thread takes kWidth neighbouring columns.
template <typename U>
struct Target {
  U* dtable;
  float* sums;  // [tokens / kRun, columns]: sums of the runs of ids with several
  std::int64_t rows, columns;
};

template <int kWidth, typename T, typename U>
__global__ void __launch_bounds__(kThreads)
    run_kernel(Target<U> to, const T* dy, Sorted sorted, bool accumulate) {
  const std::int64_t i = blockIdx.x, column = gpu::item_of_row() * kWidth;
  const std::int64_t id = sorted.id(i);
  const std::int64_t end = sorted.run_end(i);
  if (end == i || id == to.rows || column >= to.columns) return;
  const bool first = !sorted.same(i, i - 1), only = first && !sorted.same(i, end);

  float sum[kWidth] = {};
  U* const row = to.dtable + id * to.columns + column;
  if (first && accumulate) gpu::load_all(sum, row);
#pragma unroll 4
  for (std::int64_t k = i; k < end; ++k) {
    float values[kWidth];
    gpu::load_all(values, dy + position_of(sorted.first[k]) * to.columns + column);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) sum[w] += values[w];
  }
  if (only) {
    gpu::store_all(row, sum);
  } else {
    gpu::store_all(to.sums + i / kRun * to.columns + column, sum);
  }
}

/// Block j adds the runs of an id with several runs, the first of which begins in the places
/// [64j, 64j + 64). If there is such an id, it fills place 64j + 63 and the 64 places after it.
template <int kWidth, typename U>
__global__ void __launch_bounds__(kThreads) runs_of_id_kernel(Target<U> to, Sorted sorted) {
  const std::int64_t j = blockIdx.x, column = gpu::item_of_row() * kWidth;
  const std::int64_t inside = j * kRun + kRun - 1, id = sorted.id(inside);
  if (id == to.rows || !sorted.same(inside, inside + kRun) || column >= to.columns) return;
  const std::int64_t begin = sorted.find(id, 0, inside);
  if (begin < j * kRun || !sorted.same(inside, begin + 2 * kRun - 1)) return;
  const auto runs = static_cast<int>((sorted.find(id + 1, inside, sorted.tokens) - begin) / kRun);

  float total[kWidth];
  const float* sums = to.sums + j * to.columns + column;
  gpu::load_all(total, sums);
#pragma unroll 4
  for (int run = 1; run < runs; ++run) {
    sums += to.columns;
    float sum[kWidth];
    gpu::load_all(sum, sums);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) total[w] += sum[w];
  }
  gpu::store_all(to.dtable + id * to.columns + column, total);
}

Tensor sorted_occurrences(const Tensor& ids, const Rows& rows, std::int64_t padding_id) {
  const std::int64_t tokens = ids.numel();
  const Tensor occurrences = Tensor::empty({tokens}, DType::i64);
  gpu::launch(occurrences_kernel, dim3(gpu::blocks_for(tokens, kThreads, INT32_MAX)),
              dim3(kThreads), 0, gpu::stream(), reinterpret_cast<std::uint64_t*>(occurrences.raw()),
              ids.data<std::int32_t>(), tokens, rows, padding_id, id_fault());
  return gpu::radix_sorted(occurrences, 32,
                           32 + std::bit_width(static_cast<std::uint64_t>(rows.rows)));
}

template <int kWidth, typename T, typename U>
void add_rows(Out dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
              std::int64_t padding_id, const TablePart& part) {
  const CategoryScope scope(Category::workspace);
  const std::int64_t tokens = ids.numel(), columns = dy.size(1);
  const Tensor occurrences = sorted_occurrences(ids, Rows(dtable, part), padding_id);
  const Sorted sorted{reinterpret_cast<const std::uint64_t*>(occurrences.raw()), tokens};
  const bool several = tokens >= 2 * kRun;  // whether an id can have several runs
  const Tensor sums = Tensor::empty({several ? tokens / kRun : 0, columns}, DType::f32);
  const Target<U> to{dtable.data<U>(), sums.data<float>(), dtable.size(0), columns};
  const std::int64_t items = (columns + kWidth - 1) / kWidth;
  const auto [blocks, threads] = gpu::row_grid(tokens, items);
  gpu::launch(run_kernel<kWidth, T, U>, blocks, threads, 0, gpu::stream(), to, dy.data<T>(), sorted,
              accumulate);
  if (several) {
    const auto [blocks, threads] = gpu::row_grid(tokens / kRun, items);
    gpu::launch(runs_of_id_kernel<kWidth, U>, blocks, threads, 0, gpu::stream(), to, sorted);
  }
}

template <typename T, typename U>
void backward(Out dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
              std::int64_t padding_id, const TablePart& part) {
  constexpr int kWidth = gpu::Vector<T>::kSize;
  const bool vectors =
      gpu::is_vectorizable(dy.data<T>(), dy.size(1)) && gpu::is_vectorizable(dtable.data<U>(), 0);
  (vectors ? add_rows<kWidth, T, U> : add_rows<1, T, U>)(dtable, dy, ids, accumulate, padding_id,
                                                         part);
}

}  // namespace

void embedding_forward(Out y, const Tensor& table, const Tensor& ids, const TablePart& part) {
  if (y.numel() == 0) return;
  const std::size_t size = size_of(y.dtype());
  if (gpu::is_vectorizable(reinterpret_cast<const std::byte*>(y.raw()),
                           y.size(1) * static_cast<std::int64_t>(size)) &&
      gpu::is_vectorizable(reinterpret_cast<const std::byte*>(table.raw()), 0)) {
    gather<uint4>(y, table, ids, part);
  } else if (size == 4) {
    gather<std::uint32_t>(y, table, ids, part);
  } else {
    gather<std::uint16_t>(y, table, ids, part);
  }
}

void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate,
                        std::optional<std::int64_t> padding_id, const TablePart& part) {
  if (accumulate == Accumulate::no) dtable.zero();
  if (dy.numel() == 0) return;
  gpu::visit(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool add = accumulate == Accumulate::yes;
    const std::int64_t padding = padding_id.value_or(-1);
    if (dtable.dtype() == dy.dtype()) {
      backward<T, T>(dtable, dy, ids, add, padding, part);
    } else {
      backward<T, float>(dtable, dy, ids, add, padding, part);
    }
  });
}

}  // namespace tessera::cuda
