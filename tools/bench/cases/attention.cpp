#include "kernels/attention/first_key.h"
#include "kernels/attention/op.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/cast/op.h"
#include "kernels/qk_norm/op.h"
#include "kernels/rope/op.h"
#include "runtime/backends.h"
#include "runtime/context.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

/// Documents of equal length that a row packs, in the cases of packed documents.
constexpr std::int64_t kDocuments = 8;

/// Queries, keys and values, packed in [B, T, (H + 2 KV) D]; outputs [B, T, H D].
struct Packed {
  std::int64_t B, T, H, KV, D;

  std::int64_t columns() const { return (H + 2 * KV) * D; }
  Heads queries(const Tensor& qkv) const { return heads_of(qkv, 0, H, D); }
  Heads keys(const Tensor& qkv) const { return heads_of(qkv, H * D, KV, D); }
  Heads values(const Tensor& qkv) const { return heads_of(qkv, (H + KV) * D, KV, D); }
  Heads outputs(const Tensor& o) const { return heads_of(o, 0, H, D); }
  /// The tensor that rope rotates.
  Heads queries_and_keys(const Tensor& qkv) const { return heads_of(qkv, 0, H + KV, D); }
};

struct Operands {
  Tensor qkv, d_qkv, o, d_o, logsumexp;
};

/// The first keys of documents of `document` tokens, packed in every row; undefined for one of T.
Tensor first_keys_of(const Packed& p, std::int64_t document) {
  if (document == p.T) return {};
  std::vector<std::int32_t> starts;
  for (std::int64_t t = 0; t < p.B * p.T; ++t) {
    starts.push_back(static_cast<std::int32_t>(t % p.T / document * document));
  }
  return first_keys(Tensor::from(starts, {p.B, p.T}), 0);
}

Operands operands(const Packed& p, DType dtype) {
  return {.qkv = noise({p.B, p.T, p.columns()}, dtype),
          .d_qkv = Tensor::empty({p.B, p.T, p.columns()}, dtype),
          .o = noise({p.B, p.T, p.H * p.D}, dtype),
          .d_o = noise({p.B, p.T, p.H * p.D}, dtype),
          .logsumexp = Tensor::full({p.B, p.H, p.T}, DType::f32, 8.0)};
}

Baseline baseline(DType dtype) {
  const bool has_cudnn = kHasCudnn && !context().device().is_cpu() && dtype != DType::f32;
  return has_cudnn ? Baseline::cudnn : Baseline::matmul;
}

Preparation forward_of(const Packed& p, std::int64_t document, DType dtype) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.D));
  return [=] {
    return [=, t = operands(p, dtype), first_key = first_keys_of(p, document)] {
      attention_forward(p.outputs(t.o), t.logsumexp, p.queries(t.qkv), p.keys(t.qkv),
                        p.values(t.qkv), scale, first_key);
    };
  };
}

Preparation backward_of(const Packed& p, std::int64_t document, DType dtype) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.D));
  return [=] {
    return [=, t = operands(p, dtype), first_key = first_keys_of(p, document)] {
      attention_backward(p.queries(t.d_qkv), p.keys(t.d_qkv), p.values(t.d_qkv), p.outputs(t.d_o),
                         p.queries(t.qkv), p.keys(t.qkv), p.values(t.qkv), p.outputs(t.o),
                         t.logsumexp, scale, first_key);
    };
  };
}

/// Attention in every document of `document` tokens. `name` comes before "_forward". The baseline of
/// packed documents is the same documents, each in a row of its own.
void add_attention(CaseList& list, const Packed& p, std::int64_t document, const std::string& name,
                   const std::string& shape) {
  const DType dtype = list.dtype;
  const std::int64_t T = document, documents = p.B * (p.T / document), count = p.H * documents;
  // S = Q K^T, O = P V.
  const std::vector<MatmulShape> forward = {
      {.m = T, .n = T, .k = p.D, .transpose_b = Transpose::yes, .count = count},
      {.m = T, .n = p.D, .k = T, .count = count}};
  // S again and dP = dO V^T, dQ = dS K, dK = dS^T Q, dV = P^T dO.
  const std::vector<MatmulShape> backward = {
      {.m = T, .n = T, .k = p.D, .transpose_b = Transpose::yes, .count = 2 * count},
      {.m = T, .n = p.D, .k = T, .count = count},
      {.m = T, .n = p.D, .k = T, .transpose_a = Transpose::yes, .count = 2 * count}};
  const double qkv = list.bytes(p.B * p.T, p.columns());
  const double o = list.bytes(p.B * p.T, p.H * p.D);
  const Packed apart = {.B = documents, .T = document, .H = p.H, .KV = p.KV, .D = p.D};
  const Baseline whole = document == p.T ? baseline(dtype) : Baseline::apart;
  list.compute_bound(name + "_forward", shape, qkv + o, 0.5, forward,
                     forward_of(p, document, dtype), whole, forward_of(apart, document, dtype));
  const auto add_backward = [&](Baseline baseline) {
    list.compute_bound(name + "_backward", shape, 2 * (qkv + o), 0.5, backward,
                       backward_of(p, document, dtype), baseline,
                       backward_of(apart, document, dtype));
  };
  add_backward(whole);
  // cuDNN's backward pass is faster in any order.
  if (whole == Baseline::cudnn) add_backward(Baseline::cudnn_any_order);
}

/// One query over the keys of a sequence: decoding. Keys and values are read once.
void add_decoding(CaseList& list, const Packed& p) {
  const DType dtype = list.dtype;
  const double bytes = 2 * list.bytes(p.T, p.KV * p.D) + 2 * list.bytes(1, p.H * p.D);
  const std::string shape = fmt::format("1 x {}/{} heads x {} keys x {}", p.H, p.KV, p.T, p.D);
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.D));
  list.memory_bound("attention_decoding", shape, bytes, [=] {
    const Tensor q = noise({1, 1, p.H * p.D}, dtype), o = Tensor::empty(q.shape(), dtype);
    return [=, qkv = noise({1, p.T, p.columns()}, dtype),
            logsumexp = Tensor::empty({1, p.H, 1}, DType::f32)] {
      attention_forward(p.outputs(o), logsumexp, p.outputs(q), p.keys(qkv), p.values(qkv), scale);
    };
  });
}

void add_rope(CaseList& list, const Packed& p) {
  const DType dtype = list.dtype;
  const double bytes = 2 * list.bytes(p.B * p.T, (p.H + p.KV) * p.D);
  const std::string shape = fmt::format("{} x {} x {} x {}", p.B, p.T, p.H + p.KV, p.D);
  using Turn = void(const Heads&, const RopeTable&, const RopePositions&);
  const auto add = [&](const char* op, Turn* turn) {
    list.memory_bound(op, shape, bytes, [=] {
      return [=, qkv = noise({p.B, p.T, p.columns()}, dtype),
              table = rope_table(p.T, rope_frequencies(p.D, 500000.0), RopePairs::half_split)] {
        turn(p.queries_and_keys(qkv), table, RopePositions{});
      };
    });
  };
  add("rope_forward", rope_forward);
  add("rope_backward", rope_backward);
}

void add_qk_norm(CaseList& list, const Packed& p) {
  const DType dtype = list.dtype;
  const double heads = list.bytes(p.B * p.T, (p.H + p.KV) * p.D);
  const std::string shape = fmt::format("{} x {} x {}/{} heads of {}", p.B, p.T, p.H, p.KV, p.D);
  const auto operands = [=] {
    struct HeadOperands {
      Tensor x, y, dx, weight, dweight, rstd;
      Rotary rotary;
    };
    // Backward works on its own results. With weights of 1 they neither grow nor vanish.
    const Tensor weight = Tensor::empty({2 * p.D}, dtype);
    cast(weight, Tensor::full({2 * p.D}, DType::f32, 1.0));
    return HeadOperands{
        .x = noise({p.B, p.T, p.columns()}, dtype),
        .y = Tensor::empty({p.B, p.T, (p.H + p.KV) * p.D}, dtype),
        .dx = noise({p.B, p.T, p.columns()}, dtype),
        .weight = weight,
        .dweight = Tensor::empty({2 * p.D}, DType::f32),
        .rstd = Tensor::full({p.B, p.T, p.H + p.KV}, DType::f32, 1.0),
        .rotary = {rope_table(p.T, rope_frequencies(p.D, 1e6), RopePairs::half_split)}};
  };
  list.memory_bound("qk_norm_forward", shape, 2 * heads, [=] {
    return [=, t = operands()] {
      qk_norm_forward(t.y, t.rstd, t.x, t.weight, t.rotary, p.H, p.KV, 1e-6f);
    };
  });
  list.memory_bound("qk_norm_backward", shape, 3 * heads, [=] {
    return [=, t = operands()] {
      qk_norm_backward(t.dx, t.dweight, t.x, t.weight, t.rstd, p.H, p.KV, Accumulate::no);
    };
  });
}

}  // namespace

void add_attention_cases(CaseList& list) {
  const TransformerShape& model = list.model;
  const Packed p = {.B = std::max<std::int64_t>(1, list.rows / model.context),
                    .T = model.context,
                    .H = model.heads,
                    .KV = model.kv_heads,
                    .D = model.head_size};
  add_rope(list, p);
  add_qk_norm(list, p);
  const std::string heads = fmt::format("{} x {}/{} heads", p.B, p.H, p.KV);
  add_attention(list, p, p.T, "attention", fmt::format("{} x {} x {}, causal", heads, p.T, p.D));
  add_decoding(list, p);
  if (p.T % kDocuments != 0) return;
  const std::int64_t document = p.T / kDocuments;
  add_attention(list, p, document, "attention_packed",
                fmt::format("{} x {}*{} x {}", heads, kDocuments, document, p.D));
}

}  // namespace tessera
