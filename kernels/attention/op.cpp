#include "kernels/attention/op.h"

#include <string_view>

#include "kernels/checks.h"
#include "kernels/rope/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

struct HeadsArgument {
  std::string_view name;
  const Heads& heads;
};

void check_fits(std::string_view op, const HeadsArgument& argument) {
  const Heads& x = argument.heads;
  check(x.offset >= 0 && x.batch_stride >= 0 && x.token_stride >= 0 && x.batch >= 0 &&
            x.tokens >= 0 && x.heads >= 1 && x.head_size >= 1,
        "{}: {} has {} x {} tokens of {} heads of {} channels at offset {}, strides {} and {}; "
        "expected at least one head and one channel, and no negative number",
        op, argument.name, x.batch, x.tokens, x.heads, x.head_size, x.offset, x.batch_stride,
        x.token_stride);
  if (x.batch == 0 || x.tokens == 0) return;
  const std::int64_t end = x.offset + (x.batch - 1) * x.batch_stride +
                           (x.tokens - 1) * x.token_stride + x.heads * x.head_size;
  check(end <= x.tensor.numel(), "{}: {} reaches to element {} of a tensor {}", op, argument.name,
        end, describe(x.tensor));
}

/// `argument` has as many batch elements, tokens, heads and channels as `like`.
void check_like(std::string_view op, const HeadsArgument& argument, const HeadsArgument& like) {
  const Heads &x = argument.heads, &y = like.heads;
  check(x.batch == y.batch && x.tokens == y.tokens && x.heads == y.heads &&
            x.head_size == y.head_size,
        "{}: {} is [{}, {}, {}, {}] and {} is [{}, {}, {}, {}] (batch, tokens, heads, head size); "
        "they must be equal",
        op, argument.name, x.batch, x.tokens, x.heads, x.head_size, like.name, y.batch, y.tokens,
        y.heads, y.head_size);
}

void check_queries_and_keys(std::string_view op, const Heads& q, const Heads& k) {
  check(q.batch == k.batch && q.head_size == k.head_size,
        "{}: q has {} batch elements and heads of {}, k has {} and {}; they must be equal", op,
        q.batch, q.head_size, k.batch, k.head_size);
  check(q.heads % k.heads == 0,
        "{}: {} query heads and {} key heads; the first must be a multiple of the second", op,
        q.heads, k.heads);
  check(q.tokens <= k.tokens,
        "{}: {} queries but only {} keys; the queries are the last positions of the keys", op,
        q.tokens, k.tokens);
}

void check_logsumexp(std::string_view op, const Tensor& logsumexp, const Heads& q) {
  check_dtype(op, {"logsumexp", logsumexp}, statistics_dtype(q.tensor.dtype()));
  check_shape(op, {"logsumexp", logsumexp}, {q.batch, q.heads, q.tokens});
}

/// `first_key` is undefined, or fits the queries. Its numbers are checked where they can be read.
void check_first_key(std::string_view op, const Tensor& first_key, const Heads& q, const Heads& k) {
  if (!first_key.defined()) return;
  check_on_one_device(op, {{"first_key", first_key}, {"q", q.tensor}});
  check_dtype(op, {"first_key", first_key}, DType::i32);
  check_shape(op, {"first_key", first_key}, {q.batch, q.tokens});
  if (!first_key.device().is_cpu()) return;
  const std::int32_t* const keys = first_key.data<std::int32_t>();
  on_one_thread([&] {
    for (std::int64_t i = 0; i < first_key.numel(); ++i) {
      const std::int64_t query = i % q.tokens, position = k.tokens - q.tokens + query;
      const std::int64_t least = query == 0 ? 0 : keys[i - 1];
      check(least <= keys[i] && keys[i] <= position,
            "{}: first_key of query {} of batch element {} is {}; expected {} (the query before "
            "it) to {} (its own position)",
            op, query, i / q.tokens, keys[i], least, position);
    }
  });
}

}  // namespace

Heads heads_of(const Tensor& tensor, std::int64_t first_channel, std::int64_t heads,
               std::int64_t head_size, std::int64_t tokens) {
  check(tensor.rank() == 3, "heads_of: {} is not [batch, tokens, channels]", describe(tensor));
  const std::int64_t channels = tensor.size(2);
  check(heads >= 1 && head_size >= 1 && first_channel >= 0 &&
            first_channel + heads * head_size <= channels,
        "heads_of: {} heads of {} from channel {} do not fit {}", heads, head_size, first_channel,
        describe(tensor));
  check(tokens <= tensor.size(1), "heads_of: {} tokens of {}; expected at most its second extent",
        tokens, describe(tensor));
  return {.tensor = tensor,
          .offset = first_channel,
          .batch_stride = tensor.size(1) * channels,
          .token_stride = channels,
          .batch = tensor.size(0),
          .tokens = tokens < 0 ? tensor.size(1) : tokens,
          .heads = heads,
          .head_size = head_size};
}

void attention_forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k,
                       const Heads& v, float scale, const Tensor& first_key) {
  constexpr std::string_view op = "attention_forward";
  check_on_one_device(op, {{"o", o.tensor},
                           {"logsumexp", logsumexp},
                           {"q", q.tensor},
                           {"k", k.tensor},
                           {"v", v.tensor}});
  check_same_floating(op, {{"q", q.tensor}, {"k", k.tensor}, {"v", v.tensor}, {"o", o.tensor}});
  for (const HeadsArgument& x : {HeadsArgument{"o", o}, {"q", q}, {"k", k}, {"v", v}}) {
    check_fits(op, x);
  }
  check_like(op, {"o", o}, {"q", q});
  check_like(op, {"v", v}, {"k", k});
  check_queries_and_keys(op, q, k);
  check_logsumexp(op, logsumexp, q);
  check_first_key(op, first_key, q, k);
  if (q.tensor.device().is_cpu()) {
    return cpu::attention_forward(o, logsumexp, q, k, v, scale, first_key);
  }
  if constexpr (kHasCuda) {
    return cuda::attention_forward(o, logsumexp, q, k, v, scale, first_key);
  }
  fail_no_kernel(op, q.tensor.device());
}

void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale, const Tensor& first_key,
                        const Rotary* rotary) {
  constexpr std::string_view op = "attention_backward";
  check_on_one_device(op, {{"dq", dq.tensor},
                           {"dk", dk.tensor},
                           {"dv", dv.tensor},
                           {"d_o", d_o.tensor},
                           {"q", q.tensor},
                           {"k", k.tensor},
                           {"v", v.tensor},
                           {"o", o.tensor},
                           {"logsumexp", logsumexp}});
  check_same_floating(op, {{"q", q.tensor},
                           {"k", k.tensor},
                           {"v", v.tensor},
                           {"o", o.tensor},
                           {"d_o", d_o.tensor},
                           {"dq", dq.tensor},
                           {"dk", dk.tensor},
                           {"dv", dv.tensor}});
  for (const HeadsArgument& x : {HeadsArgument{"dq", dq},
                                 {"dk", dk},
                                 {"dv", dv},
                                 {"d_o", d_o},
                                 {"q", q},
                                 {"k", k},
                                 {"v", v},
                                 {"o", o}}) {
    check_fits(op, x);
  }
  for (const HeadsArgument& x : {HeadsArgument{"o", o}, {"d_o", d_o}, {"dq", dq}}) {
    check_like(op, x, {"q", q});
  }
  for (const HeadsArgument& x : {HeadsArgument{"v", v}, {"dk", dk}, {"dv", dv}}) {
    check_like(op, x, {"k", k});
  }
  check_queries_and_keys(op, q, k);
  check_logsumexp(op, logsumexp, q);
  check_first_key(op, first_key, q, k);
  if (rotary != nullptr) {
    check(q.tokens == k.tokens,
          "{}: {} queries and {} keys with a rotation; expected equal numbers", op, q.tokens,
          k.tokens);
    check_rotary(op, dq, *rotary);
    check_rotary(op, dk, *rotary);
  }
  if (q.tensor.device().is_cpu()) {
    cpu::attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, first_key);
    if (rotary != nullptr) rope_backward(dq, dk, *rotary);
    return;
  }
  if constexpr (kHasCuda) {
    return cuda::attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, scale, first_key,
                                    rotary);
  }
  fail_no_kernel(op, q.tensor.device());
}

}  // namespace tessera
