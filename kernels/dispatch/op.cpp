#include "kernels/dispatch/op.h"

#include <cstdint>

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

/// Checks rows [N k, C], places [N, k] and, if defined, weights [N, k] of the rows' dtype.
void check_dispatched(std::string_view op, const Argument& rows, const Tensor& places,
                      const Tensor& weights) {
  check_rank(op, rows, 2);
  check_rank(op, {"places", places}, 2);
  check_dtype(op, {"places", places}, DType::i32);
  check(rows.tensor.size(0) == places.numel(),
        "{}: {} is {} and places is {}; they must be [N k, C] and [N, k]", op, rows.name,
        describe(rows.tensor), describe(places));
  if (!weights.defined()) return;
  check_on_one_device(op, {{rows.name, rows.tensor}, {"weights", weights}});
  check_same_floating(op, {rows, {"weights", weights}});
  check_same_shape(op, {"weights", weights}, {"places", places});
}

/// Checks that `tokens` is [N, C] for rows [N k, C].
void check_tokens(std::string_view op, const Argument& tokens, const Tensor& rows,
                  const Tensor& places) {
  check_shape(op, tokens, {places.size(0), rows.size(1)});
}

}  // namespace

void dispatch_order(Out places, Out offsets, Out slots, const Tensor& experts) {
  constexpr std::string_view op = "dispatch_order";
  check_on_one_device(op, {{"places", places}, {"offsets", offsets}, {"experts", experts}});
  check_rank(op, {"experts", experts}, 2);
  check_same_shape(op, {"places", places}, {"experts", experts});
  check_rank(op, {"offsets", offsets}, 1);
  for (const Argument& x :
       {Argument{"places", places}, {"offsets", offsets}, {"experts", experts}}) {
    check_dtype(op, x, DType::i32);
  }
  check(offsets.numel() >= 1, "{}: offsets is {}; it must be [E + 1]", op, describe(offsets));
  check(experts.numel() < INT32_MAX, "{}: experts is {}; at most {} rows are possible", op,
        describe(experts), INT32_MAX);
  check_apart(op, {"places", places}, {"experts", experts});
  check_apart(op, {"offsets", offsets}, {"experts", experts});
  if (slots.defined()) {
    check_on_one_device(op, {{"slots", slots}, {"experts", experts}});
    check_dtype(op, {"slots", slots}, DType::i32);
    check_shape(op, {"slots", slots}, {experts.numel()});
    check_apart(op, {"slots", slots}, {"experts", experts});
  }
  run_on<cpu::dispatch_order, cuda::dispatch_order>(places.device(), op, places, offsets, slots,
                                                    experts);
}

void dispatch(Out y, const Tensor& x, const Tensor& places, const Tensor& weights) {
  constexpr std::string_view op = "dispatch";
  check_on_one_device(op, {{"y", y}, {"x", x}, {"places", places}});
  check_same_floating(op, {{"y", y}, {"x", x}});
  check_dispatched(op, {"y", y}, places, weights);
  check_tokens(op, {"x", x}, y, places);
  check_apart(op, {"y", y}, {"x", x});
  run_on<cpu::dispatch, cuda::dispatch>(y.device(), op, y, x, places, weights);
}

void combine(Out y, const Tensor& x, const Tensor& places, const Tensor& weights,
             const Tensor& residual) {
  constexpr std::string_view op = "combine";
  check_on_one_device(op, {{"y", y}, {"x", x}, {"places", places}});
  check_same_floating(op, {{"y", y}, {"x", x}});
  check_dispatched(op, {"x", x}, places, weights);
  check_tokens(op, {"y", y}, x, places);
  check_apart(op, {"y", y}, {"x", x});
  if (residual.defined()) {
    check_alike(op, {{"residual", residual}, {"y", y}});
    check_same_or_apart(op, {"y", y}, {"residual", residual});
  }
  run_on<cpu::combine, cuda::combine>(y.device(), op, y, x, places, weights, residual);
}

void weigh_backward(Out dx, Out dweights, const Tensor& dy, const Tensor& x, const Tensor& places,
                    const Tensor& weights) {
  constexpr std::string_view op = "weigh_backward";
  check_on_one_device(op, {{"dx", dx},
                           {"dweights", dweights},
                           {"dy", dy},
                           {"x", x},
                           {"places", places},
                           {"weights", weights}});
  check_same_floating(op, {{"dx", dx}, {"dweights", dweights}, {"dy", dy}, {"x", x}});
  check_dispatched(op, {"dx", dx}, places, weights);
  check_same_shape(op, {"dx", dx}, {"dy", dy});
  check_same_shape(op, {"dx", dx}, {"x", x});
  check_same_shape(op, {"dweights", dweights}, {"weights", weights});
  check_same_or_apart(op, {"dx", dx}, {"dy", dy});
  check_apart(op, {"dx", dx}, {"x", x});
  for (const Argument& input : {Argument{"dy", dy}, {"x", x}, {"weights", weights}}) {
    check_apart(op, {"dweights", dweights}, input);
  }
  run_on<cpu::weigh_backward, cuda::weigh_backward>(dx.device(), op, dx, dweights, dy, x, places,
                                                    weights);
}

}  // namespace tessera
