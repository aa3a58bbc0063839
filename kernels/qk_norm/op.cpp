#include "kernels/qk_norm/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// Both directions: x and `other` (y or dx) hold the heads, and weight and rstd fit them.
void check_common(std::string_view op, const Argument& other, const Tensor& x, const Tensor& weight,
                  const Tensor& rstd, std::int64_t heads, std::int64_t kv_heads) {
  check_on_one_device(op, {other, {"x", x}, {"weight", weight}, {"rstd", rstd}});
  check_same_floating(op, {{"x", x}, other, {"weight", weight}});
  check_rank(op, {"x", x}, 3);
  check_rank(op, {"weight", weight}, 1);
  const std::int64_t head_size = weight.numel() / 2;
  check(heads >= 1 && kv_heads >= 1 && head_size >= 1,
        "{}: {} heads of queries and {} of keys of {} channels; expected at least one of each", op,
        heads, kv_heads, head_size);
  check_shape(op, {"weight", weight}, {2 * head_size});
  check_shape(op, {"rstd", rstd}, {x.size(0), x.size(1), heads + kv_heads});
  check_dtype(op, {"rstd", rstd}, statistics_dtype(x.dtype()));
  for (const Argument& rows : {Argument{"x", x}, other}) {
    check_shape(op, rows, x.shape().with(2, rows.tensor.size(-1)));
    check(rows.tensor.size(2) >= (heads + kv_heads) * head_size,
          "{}: {} is {}; its rows must hold {} + {} heads of {} channels", op, rows.name,
          describe(rows.tensor), heads, kv_heads, head_size);
  }
  if constexpr (kHasCuda) {
    check(x.device().is_cpu() || head_size <= cuda::qk_norm::kMostChannels,
          "{}: heads of {} channels; on a GPU they have at most {}", op, head_size,
          cuda::qk_norm::kMostChannels);
  }
}

}  // namespace

void qk_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, const Rotary& rotary,
                     std::int64_t heads, std::int64_t kv_heads, float epsilon, float offset) {
  constexpr std::string_view op = "qk_norm_forward";
  check_common(op, {"y", y}, x, weight, rstd, heads, kv_heads);
  check_same_or_apart(op, {"y", y}, {"x", x});
  check_rotary(op, heads_of(y, 0, heads + kv_heads, weight.numel() / 2), rotary);
  run_on<cpu::qk_norm_forward, cuda::qk_norm_forward>(x.device(), op, y, rstd, x, weight, rotary,
                                                      heads, kv_heads, epsilon, offset);
}

void qk_norm_backward(Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                      const Tensor& rstd, std::int64_t heads, std::int64_t kv_heads,
                      Accumulate accumulate_parameters, const HeadGroup& group, float offset) {
  constexpr std::string_view op = "qk_norm_backward";
  check_common(op, {"dx", dx}, x, weight, rstd, heads, kv_heads);
  check_apart(op, {"dx", dx}, {"x", x});
  if (dweight.defined()) {
    check_on_one_device(op, {{"dweight", dweight}, {"x", x}});
    check_shape(op, {"dweight", dweight}, weight.shape());
    check_same_dtype_or_f32(op, {"dweight", dweight}, {"x", x});
  }
  check(group.count >= 1 && heads % group.count == 0 && kv_heads % group.count == 0 &&
            group.number >= 0 && group.number < group.count,
        "{}: group {} of {} of {} heads of queries and {} of keys", op, group.number, group.count,
        heads, kv_heads);
  run_on<cpu::qk_norm_backward, cuda::qk_norm_backward>(x.device(), op, dx, dweight, x, weight,
                                                        rstd, heads, kv_heads,
                                                        accumulate_parameters, group, offset);
}

}  // namespace tessera
