#include "kernels/attention/op.h"

#include <initializer_list>
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

void check_logsumexp(std::string_view op, const Tensor& logsumexp, const Heads& q) {
  check_dtype(op, {"logsumexp", logsumexp}, statistics_dtype(q.tensor.dtype()));
  check_shape(op, {"logsumexp", logsumexp}, {q.batch, q.heads, q.tokens});
}

/// The three lie one after the other in one tensor, and fill its rows.
void check_packed(std::string_view op, const Heads& dq, const Heads& dk, const Heads& dv) {
  const std::int64_t q_width = dq.heads * dq.head_size, kv_width = dk.heads * dk.head_size;
  const std::int64_t channels = q_width + 2 * kv_width;
  std::int64_t offset = 0;
  for (const Heads* x : {&dq, &dk, &dv}) {
    check(x->tensor.raw() == dq.tensor.raw() && x->offset == offset && x->tokens == dq.tokens &&
              x->token_stride == channels && x->batch_stride == dq.tokens * channels,
          "{}: sums of rows need dq, dk and dv as the {} channels of one tensor, in this order", op,
          channels);
    offset += x->heads * x->head_size;
  }
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

/// Checks one call: `like_q` have the extents of q, and `like_k` those of k.
void check_call(std::string_view op, const Heads& q, const Heads& k,
                std::initializer_list<HeadsArgument> like_q,
                std::initializer_list<HeadsArgument> like_k, const Tensor& logsumexp,
                const Tensor& first_key) {
  const HeadsArgument queries{"q", q}, keys{"k", k};
  const Argument first{"q", q.tensor};
  const auto check_one = [&](const HeadsArgument& x, const HeadsArgument& like) {
    const Argument argument{x.name, x.heads.tensor};
    check_on_one_device(op, {argument, first});
    check_same_floating(op, {first, argument});
    check_fits(op, x);
    check_like(op, x, like);
  };
  check_one(queries, queries);
  check_one(keys, keys);
  for (const HeadsArgument& x : like_q) check_one(x, queries);
  for (const HeadsArgument& x : like_k) check_one(x, keys);
  check_queries_and_keys(op, q, k);
  check_on_one_device(op, {{"logsumexp", logsumexp}, first});
  check_logsumexp(op, logsumexp, q);
  check_first_key(op, first_key, q, k);
}

}  // namespace

void check_queries_and_keys(std::string_view op, const Heads& q, const Heads& k) {
  check_fits(op, {"q", q});
  check_fits(op, {"k", k});
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
  check_call(op, q, k, {{"o", o}}, {{"v", v}}, logsumexp, first_key);
  run_on<cpu::attention_forward, cuda::attention_forward>(q.tensor.device(), op, o, logsumexp, q, k,
                                                          v, scale, first_key);
}

void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale, const Tensor& first_key,
                        const Rotary* rotary, Tensor* row_sums) {
  constexpr std::string_view op = "attention_backward";
  check_call(op, q, k, {{"o", o}, {"d_o", d_o}, {"dq", dq}}, {{"v", v}, {"dk", dk}, {"dv", dv}},
             logsumexp, first_key);
  if (rotary != nullptr) {
    check(q.tokens == k.tokens,
          "{}: {} queries and {} keys with a rotation; expected equal numbers", op, q.tokens,
          k.tokens);
    check_rotary(op, dq, *rotary);
    check_rotary(op, dk, *rotary);
  }
  if (row_sums != nullptr) check_packed(op, dq, dk, dv);
  run_on<cpu::attention_backward, cuda::attention_backward>(q.tensor.device(), op, dq, dk, dv, d_o,
                                                            q, k, v, o, logsumexp, scale, first_key,
                                                            rotary, row_sums);
}

}  // namespace tessera
