#include <algorithm>
#include <array>
#include <span>

#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/embedding/op.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera::cpu {
namespace {

/// Tokens per chunk of the parallel loops.
constexpr std::int64_t kTokens = 16;
/// Columns summed at a time, in registers and the first-level cache.
constexpr std::int64_t kColumns = 256;

void check_ids(const Tensor& ids, std::int64_t rows) {
  const auto* const id = ids.data<std::int32_t>();
  on_one_thread([&] {
    for (std::int64_t n = 0; n < ids.numel(); ++n) {
      check(id[n] >= 0 && id[n] < rows, "embedding: ids[{}] is {}; the table has rows [0, {})", n,
            id[n], rows);
    }
  });
}

/// A token and its id, in one number that sorts by id and then by position.
using Occurrence = std::int64_t;
Occurrence occurrence(std::int32_t id, std::int64_t position) {
  return std::int64_t{id} << 32 | position;
}
std::int64_t id_of(Occurrence o) {
  return o >> 32;
}
std::int64_t position_of(Occurrence o) {
  return o & 0xffffffff;
}

Tensor sorted_occurrences(const Tensor& ids) {
  const CategoryScope scope(Category::workspace);
  const Tensor sorted = Tensor::empty(ids.shape(), DType::i64);
  const auto* const id = ids.data<std::int32_t>();
  auto* const first = sorted.data<Occurrence>();
  on_one_thread([&] {
    for (std::int64_t n = 0; n < ids.numel(); ++n) first[n] = occurrence(id[n], n);
    std::sort(first, first + ids.numel());
  });
  return sorted;
}

/// sum += columns [begin, begin + count) of the rows of dy at `occurrences`, in their order.
template <typename T>
void add_run(std::array<compute_t<T>, kColumns>& sum, const T* dy,
             std::span<const Occurrence> occurrences, std::int64_t columns, std::int64_t begin,
             std::int64_t count) {
  for (const Occurrence o : occurrences) {
    const T* const from = dy + position_of(o) * columns + begin;
    for (std::int64_t c = 0; c < count; ++c) sum[c] += load(from[c]);
  }
}

/// row += the rows of dy at `occurrences`, in the runs of op.h; rounded once at the end.
template <typename T, typename U>
void add_rows(U* row, const T* dy, std::span<const Occurrence> occurrences, std::int64_t columns) {
  const auto runs = std::max<std::size_t>(1, occurrences.size() / kEmbeddingRun);
  for (std::int64_t begin = 0; begin < columns; begin += kColumns) {
    const std::int64_t count = std::min(kColumns, columns - begin);
    std::array<compute_t<T>, kColumns> total, sum;
    for (std::int64_t c = 0; c < count; ++c) total[c] = load(row[begin + c]);
    for (std::size_t run = 0; run < runs; ++run) {
      const auto rest = occurrences.subspan(run * kEmbeddingRun);
      const auto members = run + 1 == runs ? rest : rest.first(kEmbeddingRun);
      if (run == 0) {
        add_run(total, dy, members, columns, begin, count);
        continue;
      }
      sum.fill(0);
      add_run(sum, dy, members, columns, begin, count);
      for (std::int64_t c = 0; c < count; ++c) total[c] += sum[c];
    }
    for (std::int64_t c = 0; c < count; ++c) store_as(row[begin + c], total[c]);
  }
}

template <typename T, typename U>
void backward(Out dtable, const Tensor& dy, const Tensor& ids,
              std::optional<std::int64_t> padding_id, const TablePart& part) {
  const Tensor sorted = sorted_occurrences(ids);
  const std::int64_t tokens = ids.numel(), columns = dy.size(1);
  const auto* const occurrences = sorted.data<Occurrence>();
  const T* const from = dy.data<T>();
  const std::int64_t rows = dtable.size(0), first_row = part.first;
  U* const to = dtable.data<U>();
  // A chunk sums the ids with their first occurrence in it, so every row has one owner.
  parallel_for(tokens, kTokens, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = id_of(occurrences[i]);
      const std::int64_t row = id - first_row;
      if (id == padding_id || row < 0 || row >= rows) continue;
      if (i > 0 && id_of(occurrences[i - 1]) == id) continue;
      std::int64_t last = i + 1;
      while (last < tokens && id_of(occurrences[last]) == id) ++last;
      add_rows(to + row * columns, from, std::span(occurrences + i, occurrences + last), columns);
    }
  });
}

}  // namespace

void embedding_forward(Out y, const Tensor& table, const Tensor& ids, const TablePart& part) {
  check_ids(ids, part.rows_of_all(table));
  const std::int64_t rows = table.size(0), first_row = part.first;
  const std::size_t row_bytes = static_cast<std::size_t>(table.size(1)) * size_of(table.dtype());
  const auto* const id = ids.data<std::int32_t>();
  const std::byte* const from = table.raw();
  std::byte* const to = y.raw();
  parallel_for(ids.numel(), kTokens, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t row = id[n] - first_row;
      std::byte* const y_row = to + static_cast<std::size_t>(n) * row_bytes;
      if (row < 0 || row >= rows) {
        std::fill_n(y_row, row_bytes, std::byte{0});
      } else {
        std::copy_n(from + static_cast<std::size_t>(row) * row_bytes, row_bytes, y_row);
      }
    }
  });
}

void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate,
                        std::optional<std::int64_t> padding_id, const TablePart& part) {
  check_ids(ids, part.rows_of_all(dtable));
  if (accumulate == Accumulate::no) dtable.zero();
  visit_floating(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    if (dtable.dtype() == dy.dtype()) {
      backward<T, T>(dtable, dy, ids, padding_id, part);
    } else {
      backward<T, float>(dtable, dy, ids, padding_id, part);
    }
  });
}

}  // namespace tessera::cpu
