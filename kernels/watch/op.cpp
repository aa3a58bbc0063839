#include "kernels/watch/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

void check_largest(std::string_view op, const Tensor& largest, std::int64_t count) {
  check_dtype(op, {"largest", largest}, DType::f32);
  check_shape(op, {"largest", largest}, {count});
}

}  // namespace

void raise_to_magnitude(Out largest, const Tensor& x) {
  constexpr std::string_view op = "raise_to_magnitude";
  check_on_one_device(op, {{"largest", largest}, {"x", x}});
  check_largest(op, largest, 1);
  check_floating(op, {"x", x});
  run_on<cpu::raise_to_magnitude, cuda::raise_to_magnitude>(x.device(), op, largest, x);
}

void raise_to_attention_logit(Out largest, const Heads& q, const Heads& k, float scale,
                              const Tensor& first_key) {
  constexpr std::string_view op = "raise_to_attention_logit";
  check_on_one_device(op, {{"largest", largest}, {"q", q.tensor}, {"k", k.tensor}});
  check_largest(op, largest, q.heads);
  check_same_floating(op, {{"q", q.tensor}, {"k", k.tensor}});
  check_queries_and_keys(op, q, k);
  run_on<cpu::raise_to_attention_logit, cuda::raise_to_attention_logit>(
      q.tensor.device(), op, largest, q, k, scale, first_key);
}

void add_router_entropy(Out sum, const Tensor& logits) {
  constexpr std::string_view op = "add_router_entropy";
  check_on_one_device(op, {{"sum", sum}, {"logits", logits}});
  check_dtype(op, {"sum", sum}, DType::i64);
  check_shape(op, {"sum", sum}, {2});
  check_floating(op, {"logits", logits});
  check_rank(op, {"logits", logits}, 2);
  run_on<cpu::add_router_entropy, cuda::add_router_entropy>(sum.device(), op, sum, logits);
}

}  // namespace tessera
