#include "kernels/embedding/op.h"

#include <string_view>

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

/// Checks the shapes table [V, C], ids [N] and rows [N, C].
void check_lookup(std::string_view op, const Argument& table, const Tensor& ids,
                  const Argument& rows) {
  check_rank(op, table, 2);
  check_dtype(op, {"ids", ids}, DType::i32);
  check_rank(op, {"ids", ids}, 1);
  check_shape(op, rows, {ids.numel(), table.tensor.size(1)});
}

}  // namespace

void embedding_forward(Out y, const Tensor& table, const Tensor& ids, const TablePart& part) {
  constexpr std::string_view op = "embedding_forward";
  check_on_one_device(op, {{"y", y}, {"table", table}, {"ids", ids}});
  check_same_floating(op, {{"table", table}, {"y", y}});
  check_lookup(op, {"table", table}, ids, {"y", y});
  check_apart(op, {"y", y}, {"table", table});
  check_apart(op, {"y", y}, {"ids", ids});
  run_on<cpu::embedding_forward, cuda::embedding_forward>(y.device(), op, y, table, ids, part);
}

void embedding_backward(Out dtable, const Tensor& dy, const Tensor& ids, Accumulate accumulate,
                        std::optional<std::int64_t> padding_id, const TablePart& part) {
  constexpr std::string_view op = "embedding_backward";
  check_on_one_device(op, {{"dtable", dtable}, {"dy", dy}, {"ids", ids}});
  check_floating(op, {"dy", dy});
  check_same_dtype_or_f32(op, {"dtable", dtable}, {"dy", dy});
  check_lookup(op, {"dtable", dtable}, ids, {"dy", dy});
  check_apart(op, {"dtable", dtable}, {"dy", dy});
  check_apart(op, {"dtable", dtable}, {"ids", ids});
  const std::int64_t rows = part.rows_of_all(dtable);
  check(!padding_id || (0 <= *padding_id && *padding_id < rows),
        "{}: padding_id is {}; the table has rows [0, {})", op, padding_id.value_or(0), rows);
  run_on<cpu::embedding_backward, cuda::embedding_backward>(dy.device(), op, dtable, dy, ids,
                                                            accumulate, padding_id, part);
}

}  // namespace tessera
