#include "kernels/matmul/cpu/steps.h"

#include <algorithm>

#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

/// Elements of a task.
constexpr std::int64_t kChunk = 16 * 1024;
/// Columns of a task, which has all rows: whole cache lines, and enough of them for the prefetcher.
constexpr std::int64_t kColumns = 128;

}  // namespace

void visit_columns(const ProductSteps::Step& step, std::int64_t rows, std::int64_t columns) {
  if (!step || rows == 0) return;
  parallel_for(columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    step({0, rows, begin, end - begin});
  });
}

void visit_rows(const ProductSteps::Step& step, std::int64_t rows, std::int64_t columns) {
  if (!step || columns == 0) return;
  const std::int64_t chunk = std::max<std::int64_t>(1, kChunk / columns);
  parallel_for(rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    step({begin, end - begin, 0, columns});
  });
}

}  // namespace tessera::cpu
