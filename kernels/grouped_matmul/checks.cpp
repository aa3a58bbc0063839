#include "kernels/grouped_matmul/checks.h"

#include <algorithm>
#include <cstdint>

#include "kernels/swiglu/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// Checks the rows of an operand and the offsets of their groups.
void check_groups(std::string_view op, std::string_view name, const RoutedRows& rows,
                  const Tensor& offsets, std::int64_t groups) {
  const Tensor& values = rows.values.values;
  check_rank(op, {name, values}, 2);
  check_dtype(op, {"offsets", offsets}, DType::i32);
  check_shape(op, {"offsets", offsets}, {groups + 1});
  check(rows.size(0) <= INT32_MAX, "{}: {} is {}; at most {} rows are possible", op, name,
        describe(values), INT32_MAX);
  if (!rows.of_tokens()) return;
  check_on_one_device(op, {{name, values}, {"places", rows.places}});
  check_rank(op, {"places", rows.places}, 2);
  check_dtype(op, {"places", rows.places}, DType::i32);
  check(rows.places.size(0) == values.size(0),
        "{}: {} is {} and places is {}; there must be places for each of the tokens", op, name,
        describe(values), describe(rows.places));
  if (!rows.slots.defined()) return;
  check_on_one_device(op, {{name, values}, {"slots", rows.slots}});
  check_dtype(op, {"slots", rows.slots}, DType::i32);
  check_shape(op, {"slots", rows.slots}, {rows.places.numel()});
}

}  // namespace

void check_product_of_rows(std::string_view op, const Argument& c, const RoutedRows& a,
                           const Tensor& b, const Tensor& offsets, Transpose transpose_b) {
  const Tensor& rows = a.values.values;
  check_on_one_device(op, {c, {"a", rows}, {"b", b}, {"offsets", offsets}});
  check_same_floating(op, {{"a", rows}, {"b", b}});
  check_rank(op, {"b", b}, 3);
  const std::int64_t E = b.size(0), groups = E == 0 ? 0 : std::max(E, offsets.numel() - 1);
  check_groups(op, "a", a, offsets, groups);
  check(E == 0 || groups % E == 0,
        "{}: offsets has {} groups; the {} matrices of b must divide them", op, groups, E);
  const bool transposed = transpose_b == Transpose::yes;
  const std::int64_t K = b.size(transposed ? 2 : 1), N = b.size(transposed ? 1 : 2);
  check(a.size(1) == K, "{}: a is {} and b is {}{}; a must have {} columns", op, describe(rows),
        describe(b), transposed ? ", transposed" : "", K);
  check_shape(op, c, {a.size(0), N});
  check_apart(op, c, {"a", rows});
  check_apart(op, c, {"b", b});
}

void check_gated_product(std::string_view op, Out y, Out c, const RoutedRows& a, const Tensor& b,
                         const Tensor& offsets, Transpose transpose_b) {
  check_same_floating(op, {{"c", c}, {"a", a.values.values}});
  check_product_of_rows(op, {"c", c}, a, b, offsets, transpose_b);
  check_gate_up(op, {"c", c}, {"y", y});
  check_apart(op, {"y", y}, {"a", a.values.values});
  check_apart(op, {"y", y}, {"b", b});
}

void check_gated_gradient(std::string_view op, Out y, Out dweights, Out dgate_up,
                          const RoutedRows& a, const Tensor& b, const Tensor& gate_up,
                          const Tensor& offsets, const Tensor& places, const Tensor& slots,
                          const Tensor& weights, Transpose transpose_b) {
  check_same_floating(op, {{"y", y}, {"a", a.values.values}});
  check_product_of_rows(op, {"y", y}, a, b, offsets, transpose_b);
  for (const Argument& packed : {Argument{"dgate_up", dgate_up}, Argument{"gate_up", gate_up}}) {
    check_gate_up(op, packed, {"y", y});
  }
  check_same_or_apart(op, {"dgate_up", dgate_up}, {"gate_up", gate_up});
  check_apart(op, {"dgate_up", dgate_up}, {"a", a.values.values});
  check_apart(op, {"dgate_up", dgate_up}, {"b", b});
  check_row_weights(op, {"y", y}, dweights, places, weights);
  if (!slots.defined()) return;
  check_on_one_device(op, {{"slots", slots}, {"y", y}});
  check_dtype(op, {"slots", slots}, DType::i32);
  check_shape(op, {"slots", slots}, {y.size(0)});
}

void check_product_of_weights(std::string_view op, Out c, const RoutedRows& a, const RoutedRows& b,
                              const Tensor& offsets) {
  const Tensor &left = a.values.values, &right = b.values.values;
  check_on_one_device(op, {{"c", c}, {"a", left}, {"b", right}, {"offsets", offsets}});
  check_same_floating(op, {{"a", left}, {"b", right}});
  check_same_dtype_or_f32(op, {"c", c}, {"a", left});
  check_rank(op, {"c", c}, 3);
  check_groups(op, "a", a, offsets, c.size(0));
  check_groups(op, "b", b, offsets, c.size(0));
  check(a.size(0) == b.size(0), "{}: a is {} and b is {}; their rows must be equal", op,
        describe(left), describe(right));
  check_shape(op, {"c", c}, {offsets.numel() - 1, a.size(1), b.size(1)});
  check_apart(op, {"c", c}, {"a", left});
  check_apart(op, {"c", c}, {"b", right});
}

}  // namespace tessera
