#include "kernels/grouped_matmul/op.h"

#include <algorithm>
#include <cstdint>

#include "kernels/checks.h"
#include "kernels/swiglu/checks.h"
#include "kernels/swiglu/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// Checks rows [P, ...] and the offsets of their groups.
void check_groups(std::string_view op, const Argument& rows, const Tensor& offsets,
                  std::int64_t groups) {
  check_rank(op, rows, 2);
  check_dtype(op, {"offsets", offsets}, DType::i32);
  check_shape(op, {"offsets", offsets}, {groups + 1});
  check(rows.tensor.size(0) <= INT32_MAX, "{}: {} is {}; at most {} rows are possible", op,
        rows.name, describe(rows.tensor), INT32_MAX);
}

/// Checks the arguments of a product of rows.
void check_rows(std::string_view op, const Argument& c, const Tensor& a, const Tensor& b,
                const Tensor& offsets, Transpose transpose_b) {
  check_on_one_device(op, {c, {"a", a}, {"b", b}, {"offsets", offsets}});
  check_same_floating(op, {{"a", a}, {"b", b}});
  check_rank(op, {"b", b}, 3);
  const std::int64_t E = b.size(0), groups = E == 0 ? 0 : std::max(E, offsets.numel() - 1);
  check_groups(op, {"a", a}, offsets, groups);
  check(E == 0 || groups % E == 0,
        "{}: offsets has {} groups; the {} matrices of b must divide them", op, groups, E);
  const bool transposed = transpose_b == Transpose::yes;
  const std::int64_t K = b.size(transposed ? 2 : 1), N = b.size(transposed ? 1 : 2);
  check(a.size(1) == K, "{}: a is {} and b is {}{}; a must have {} columns", op, describe(a),
        describe(b), transposed ? ", transposed" : "", K);
  check_shape(op, c, {a.size(0), N});
  check_apart(op, c, {"a", a});
  check_apart(op, c, {"b", b});
}

}  // namespace

void grouped_matmul(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                    Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul";
  check_same_floating(op, {{"c", c}, {"a", a}});
  check_rows(op, {"c", c}, a, b, offsets, transpose_b);
  run_on<cpu::grouped_matmul, cuda::grouped_matmul>(c.device(), op, c, a, b, offsets, transpose_b);
}

void grouped_matmul_part(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                         Transpose transpose_b, const DepthPart& depths) {
  constexpr std::string_view op = "grouped_matmul_part";
  check_rows(op, {"c", c}, a, b, offsets, transpose_b);
  check_dtype(op, {"c", c}, statistics_dtype(a.dtype()));
  check(!depths.empty(), "{}: the part has no range; it needs at least one", op);
  for (const DepthRange& range : depths) {
    check(range.first >= 0 && range.count >= 1 && range.count <= a.size(1) - range.first,
          "{}: a range has {} depths from {} on; it needs at least one depth, within the {} of a",
          op, range.count, range.first, a.size(1));
  }
  run_on<cpu::grouped_matmul_part, cuda::grouped_matmul_part>(c.device(), op, c, a, b, offsets,
                                                              transpose_b, depths);
}

void grouped_matmul_swiglu(Out y, Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul_swiglu";
  check_same_floating(op, {{"c", c}, {"a", a}});
  check_rows(op, {"c", c}, a, b, offsets, transpose_b);
  check_gate_up(op, {"c", c}, {"y", y});
  check_apart(op, {"y", y}, {"a", a});
  check_apart(op, {"y", y}, {"b", b});
  if (c.device().is_cpu()) return cpu::grouped_matmul_swiglu(y, c, a, b, offsets, transpose_b);
  if constexpr (kHasCuda) {
    if (cuda::grouped_matmul_swiglu(y, c, a, b, offsets, transpose_b)) return;
  }
  grouped_matmul(c, a, b, offsets, transpose_b);
  swiglu_forward(y, first_half(c), second_half(c));
}

void grouped_matmul_swiglu_backward(Out y, Out dweights, Out dgate_up, const Tensor& a,
                                    const Tensor& b, const Tensor& gate_up, const Tensor& offsets,
                                    const Tensor& places, const Tensor& slots,
                                    const Tensor& weights, Transpose transpose_b) {
  constexpr std::string_view op = "grouped_matmul_swiglu_backward";
  check_same_floating(op, {{"y", y}, {"a", a}});
  check_rows(op, {"y", y}, a, b, offsets, transpose_b);
  for (const Argument& packed : {Argument{"dgate_up", dgate_up}, Argument{"gate_up", gate_up}}) {
    check_gate_up(op, packed, {"y", y});
  }
  check_same_or_apart(op, {"dgate_up", dgate_up}, {"gate_up", gate_up});
  check_apart(op, {"dgate_up", dgate_up}, {"a", a});
  check_apart(op, {"dgate_up", dgate_up}, {"b", b});
  check_row_weights(op, {"y", y}, dweights, places, weights);
  if (slots.defined()) {
    check_on_one_device(op, {{"slots", slots}, {"y", y}});
    check_dtype(op, {"slots", slots}, DType::i32);
    check_shape(op, {"slots", slots}, {y.size(0)});
  }
  const auto run = [&] {
    if constexpr (kHasCuda) {
      const bool suits = !weights.defined() || (slots.defined() && dweights.rank() == 2);
      if (!y.device().is_cpu() && suits &&
          cuda::grouped_matmul_swiglu_backward(y, dweights, dgate_up, a, b, gate_up, offsets, slots,
                                               weights, transpose_b)) {
        return;
      }
    }
    grouped_matmul(y, a, b, offsets, transpose_b);
    weighed_swiglu_backward(y, dweights, first_half(dgate_up), second_half(dgate_up), y,
                            first_half(gate_up), second_half(gate_up), places, weights);
  };
  run_observed(op, run, y, dweights, dgate_up, a, b, gate_up, offsets, places, slots, weights);
}

void grouped_matmul_weight(Out c, const Tensor& a, const Tensor& b, const Tensor& offsets,
                           Accumulate accumulate) {
  constexpr std::string_view op = "grouped_matmul_weight";
  check_on_one_device(op, {{"c", c}, {"a", a}, {"b", b}, {"offsets", offsets}});
  check_same_floating(op, {{"a", a}, {"b", b}});
  check_same_dtype_or_f32(op, {"c", c}, {"a", a});
  check_rank(op, {"c", c}, 3);
  check_groups(op, {"a", a}, offsets, c.size(0));
  check_rank(op, {"b", b}, 2);
  check(a.size(0) == b.size(0), "{}: a is {} and b is {}; their rows must be equal", op,
        describe(a), describe(b));
  check_shape(op, {"c", c}, {offsets.numel() - 1, a.size(1), b.size(1)});
  check_apart(op, {"c", c}, {"a", a});
  check_apart(op, {"c", c}, {"b", b});
  run_on<cpu::grouped_matmul_weight, cuda::grouped_matmul_weight>(c.device(), op, c, a, b, offsets,
                                                                  accumulate);
}

}  // namespace tessera
