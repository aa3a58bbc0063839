#include "tools/bench/kernel_cases.h"

#include <fmt/format.h>

#include "kernels/adamw/op.h"
#include "kernels/add/op.h"
#include "kernels/attention/op.h"
#include "kernels/cast/op.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/dropout/op.h"
#include "kernels/embedding/op.h"
#include "kernels/gelu/op.h"
#include "kernels/gradient_norm/op.h"
#include "kernels/layer_norm/op.h"
#include "kernels/linear_cross_entropy/op.h"
#include "kernels/matmul/op.h"
#include "kernels/rms_norm/op.h"
#include "runtime/random.h"

namespace tessera {
namespace {

constexpr float kEpsilon = 1e-5f;

Tensor ids(std::int64_t count, std::int64_t bound) {
  const RandomStream random(0, "ids");
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(bound))));
  }
  return Tensor::from(values, {count});
}

/// The cases so far, and what they share.
class Cases {
 public:
  Cases(const KernelSizes& sizes, DType dtype) : sizes_(sizes), dtype_(dtype) {}

  std::vector<KernelCase> all() {
    for (const std::int64_t width : sizes_.widths) {
      embedding(width);
      layer_norm(width);
      rms_norm(width);
      linear(width);
      elementwise(width);
      head(width);
    }
    attention();
    cross_entropy();
    optimizer();
    return std::move(cases_);
  }

 private:
  double size(DType dtype) const { return static_cast<double>(size_of(dtype)); }
  double elements(std::int64_t rows, std::int64_t columns) const {
    return static_cast<double>(rows) * static_cast<double>(columns);
  }

  /// A kernel bound by memory.
  void memory_bound(std::string op, std::string shape, double bytes,
                    std::function<std::function<void()>()> prepare) {
    cases_.push_back({.op = std::move(op),
                      .shape = std::move(shape),
                      .dtype = dtype_,
                      .bytes = bytes,
                      .prepare = std::move(prepare)});
  }

  /// A kernel bound by arithmetic, made of `matmuls`; `share` of their operations count.
  void compute_bound(std::string op, std::string shape, double bytes, double share,
                     std::vector<MatmulShape> matmuls,
                     std::function<std::function<void()>()> prepare) {
    double flops = 0.0;
    for (const MatmulShape& matmul : matmuls) flops += share * matmul.flops();
    cases_.push_back({.op = std::move(op),
                      .shape = std::move(shape),
                      .dtype = dtype_,
                      .bytes = bytes,
                      .flops = flops,
                      .yardstick = Yardstick::matmul,
                      .matmuls = std::move(matmuls),
                      .prepare = std::move(prepare)});
  }

  void embedding(std::int64_t C) {
    const std::int64_t N = sizes_.tokens, V = sizes_.vocab_size;
    const std::string shape = fmt::format("{} of {} x {}", N, V, C);
    const double activations = elements(N, C) * size(dtype_);
    memory_bound("embedding_forward", shape, 2 * activations, [=, dtype = dtype_] {
      return [y = Tensor::empty({N, C}, dtype), table = noise({V, C}, dtype), at = ids(N, V)] {
        embedding_forward(y, table, at);
      };
    });
    // Rows that no token names are written too.
    memory_bound("embedding_backward", shape, activations + elements(V, C) * 4,
                 [=, dtype = dtype_] {
                   return [table = Tensor::empty({V, C}, DType::f32), dy = noise({N, C}, dtype),
                           at = ids(N, V)] { embedding_backward(table, dy, at, Accumulate::no); };
                 });
  }

  void layer_norm(std::int64_t C) {
    const std::int64_t N = sizes_.tokens;
    const std::string shape = fmt::format("{} x {}", N, C);
    const double activations = elements(N, C) * size(dtype_);
    const auto operands = [=, dtype = dtype_] {
      struct {
        Tensor x, residual, dy, weight, bias, sum, y, dx, mean, rstd, dweight, dbias;
      } t{noise({N, C}, dtype),
          noise({N, C}, dtype),
          noise({N, C}, dtype),
          noise({C}, dtype),
          noise({C}, dtype),
          Tensor::empty({N, C}, dtype),
          Tensor::empty({N, C}, dtype),
          Tensor::empty({N, C}, dtype),
          Tensor::zeros({N}, DType::f32),
          Tensor::full({N}, DType::f32, 1.0),
          Tensor::empty({C}, DType::f32),
          Tensor::empty({C}, DType::f32)};
      return t;
    };
    memory_bound("layer_norm_forward", shape, 2 * activations, [=] {
      return [t = operands()] {
        layer_norm_forward(t.y, t.mean, t.rstd, t.x, t.weight, t.bias, kEpsilon);
      };
    });
    memory_bound("layer_norm_backward", shape, 3 * activations, [=] {
      return [t = operands()] {
        layer_norm_backward(t.dx, t.dweight, t.dbias, t.dy, t.x, t.weight, t.mean, t.rstd,
                            Accumulate::no);
      };
    });
    memory_bound("add_layer_norm_forward", shape, 4 * activations, [=] {
      return [t = operands()] {
        add_layer_norm_forward(t.y, t.sum, t.mean, t.rstd, t.x, t.residual, t.weight, t.bias,
                               kEpsilon);
      };
    });
    memory_bound("add_layer_norm_backward", shape, 4 * activations, [=] {
      return [t = operands()] {
        add_layer_norm_backward(t.dx, t.dweight, t.dbias, t.dy, t.residual, t.x, t.weight, t.mean,
                                t.rstd, Accumulate::no);
      };
    });
  }

  void rms_norm(std::int64_t C) {
    const std::int64_t N = sizes_.tokens;
    const std::string shape = fmt::format("{} x {}", N, C);
    const double activations = elements(N, C) * size(dtype_);
    const auto operands = [=, dtype = dtype_] {
      struct {
        Tensor x, residual, dy, weight, sum, y, dx, rstd, dweight;
      } t{noise({N, C}, dtype),          noise({N, C}, dtype),
          noise({N, C}, dtype),          noise({C}, dtype),
          Tensor::empty({N, C}, dtype),  Tensor::empty({N, C}, dtype),
          Tensor::empty({N, C}, dtype),  Tensor::full({N}, DType::f32, 1.0),
          Tensor::empty({C}, DType::f32)};
      return t;
    };
    memory_bound("rms_norm_forward", shape, 2 * activations, [=] {
      return [t = operands()] { rms_norm_forward(t.y, t.rstd, t.x, t.weight, kEpsilon); };
    });
    memory_bound("rms_norm_backward", shape, 3 * activations, [=] {
      return [t = operands()] {
        rms_norm_backward(t.dx, t.dweight, t.dy, t.x, t.weight, t.rstd, Accumulate::no);
      };
    });
    memory_bound("add_rms_norm_forward", shape, 4 * activations, [=] {
      return [t = operands()] {
        add_rms_norm_forward(t.y, t.sum, t.rstd, t.x, t.residual, t.weight, kEpsilon);
      };
    });
    memory_bound("add_rms_norm_backward", shape, 4 * activations, [=] {
      return [t = operands()] {
        add_rms_norm_backward(t.dx, t.dweight, t.dy, t.residual, t.x, t.weight, t.rstd,
                              Accumulate::no);
      };
    });
  }

  /// The products of a linear layer from C to 4 C.
  void linear(std::int64_t C) {
    const std::int64_t N = sizes_.tokens, F = 4 * C;
    const double bytes = (elements(N, C) + elements(N, F) + elements(F, C)) * size(dtype_);
    const std::string shape = fmt::format("{} x {} x {}", N, F, C);
    const auto product = [=, this](const char* op, const MatmulShape& m, DType result) {
      compute_bound(op, shape, bytes, 1.0, {m}, [=, dtype = dtype_] {
        const bool ta = m.transpose_a == Transpose::yes, tb = m.transpose_b == Transpose::yes;
        return [=, a = noise(ta ? Shape{m.k, m.m} : Shape{m.m, m.k}, dtype),
                b = noise(tb ? Shape{m.n, m.k} : Shape{m.k, m.n}, dtype),
                c = Tensor::empty({m.m, m.n}, result)] {
          matmul(c, a, b, m.transpose_a, m.transpose_b);
        };
      });
    };
    product("matmul_forward", {.m = N, .n = F, .k = C, .transpose_b = Transpose::yes}, dtype_);
    product("matmul_dx", {.m = N, .n = C, .k = F}, dtype_);
    product("matmul_dweight", {.m = F, .n = C, .k = N, .transpose_a = Transpose::yes}, DType::f32);
  }

  void elementwise(std::int64_t C) {
    const std::int64_t N = sizes_.tokens, F = 4 * C;
    const double wide = elements(N, F) * size(dtype_), narrow = elements(N, C) * size(dtype_);
    const std::string wide_shape = fmt::format("{} x {}", N, F);
    const std::string narrow_shape = fmt::format("{} x {}", N, C);
    memory_bound("gelu_forward", wide_shape, 2 * wide, [=, dtype = dtype_] {
      return [y = Tensor::empty({N, F}, dtype), x = noise({N, F}, dtype)] { gelu_forward(y, x); };
    });
    memory_bound("gelu_backward", wide_shape, 3 * wide, [=, dtype = dtype_] {
      return [dx = Tensor::empty({N, F}, dtype), dy = noise({N, F}, dtype),
              x = noise({N, F}, dtype)] { gelu_backward(dx, dy, x); };
    });
    memory_bound("add", narrow_shape, 3 * narrow, [=, dtype = dtype_] {
      return [y = Tensor::empty({N, C}, dtype), a = noise({N, C}, dtype),
              b = noise({N, C}, dtype)] { add(y, a, b); };
    });
    memory_bound("dropout", narrow_shape, 2 * narrow, [=, dtype = dtype_] {
      return [y = Tensor::empty({N, C}, dtype), x = noise({N, C}, dtype)] {
        dropout(y, x, 0.1f, RandomStream(1, "bench"));
      };
    });
    if (dtype_ == DType::f32) return;
    memory_bound("cast_to_f32", narrow_shape, narrow + elements(N, C) * 4, [=, dtype = dtype_] {
      return [y = Tensor::empty({N, C}, DType::f32), x = noise({N, C}, dtype)] { cast(y, x); };
    });
  }

  /// The language model's head and loss with all gradients: three products.
  void head(std::int64_t C) {
    const std::int64_t N = sizes_.tokens, V = sizes_.vocab_size;
    const double bytes = (2 * elements(N, C) + elements(V, C)) * size(dtype_) + elements(V, C) * 4;
    compute_bound("linear_cross_entropy", fmt::format("{} x {} x {}", N, V, C), bytes, 1.0,
                  {{.m = N, .n = V, .k = C, .transpose_b = Transpose::yes},
                   {.m = N, .n = C, .k = V},
                   {.m = V, .n = C, .k = N, .transpose_a = Transpose::yes}},
                  [=, dtype = dtype_] {
                    return [=, loss = Tensor::empty({1}, DType::f32), x = noise({N, C}, dtype),
                            dx = Tensor::empty({N, C}, dtype), weight = noise({V, C}, dtype),
                            dweight = Tensor::empty({V, C}, DType::f32), targets = ids(N, V)] {
                      linear_cross_entropy(loss, dx, dweight, x, weight, targets,
                                           1.0 / static_cast<double>(N), Accumulate::no);
                    };
                  });
  }

  void attention() {
    const std::int64_t T = sizes_.sequence, D = sizes_.head_size;
    const std::int64_t B = std::max<std::int64_t>(1, sizes_.tokens / T);
    const std::int64_t H = std::max<std::int64_t>(1, sizes_.widths.back() / D), C = H * D;
    const double activations = elements(B * T, C) * size(dtype_);
    const std::string shape = fmt::format("{} x {} heads x {} x {}, causal", B, H, T, D);
    // S = Q K^T, O = P V.
    const std::vector<MatmulShape> forward = {
        {.m = T, .n = T, .k = D, .transpose_b = Transpose::yes, .count = B * H},
        {.m = T, .n = D, .k = T, .count = B * H}};
    // And dP = dO V^T, dQ = dS K, dK = dS^T Q, dV = P^T dO.
    const std::vector<MatmulShape> backward = {
        {.m = T, .n = T, .k = D, .transpose_b = Transpose::yes, .count = 2 * B * H},
        {.m = T, .n = D, .k = T, .count = B * H},
        {.m = T, .n = D, .k = T, .transpose_a = Transpose::yes, .count = 2 * B * H}};
    const auto operands = [=, dtype = dtype_] {
      struct {
        Tensor qkv, d_qkv, o, d_o, logsumexp;
      } t{noise({B, T, 3 * C}, dtype), Tensor::empty({B, T, 3 * C}, dtype), noise({B, T, C}, dtype),
          noise({B, T, C}, dtype), Tensor::full({B, H, T}, DType::f32, 8.0)};
      return t;
    };
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    const auto part = [=](const Tensor& packed, std::int64_t which) {
      return heads_of(packed, which * C, H, D);
    };
    compute_bound("attention_forward", shape, 4 * activations, 0.5, forward, [=] {
      return [=, t = operands()] {
        attention_forward(part(t.o, 0), t.logsumexp, part(t.qkv, 0), part(t.qkv, 1), part(t.qkv, 2),
                          scale);
      };
    });
    compute_bound("attention_backward", shape, 8 * activations, 0.5, backward, [=] {
      return [=, t = operands()] {
        attention_backward(part(t.d_qkv, 0), part(t.d_qkv, 1), part(t.d_qkv, 2), part(t.d_o, 0),
                           part(t.qkv, 0), part(t.qkv, 1), part(t.qkv, 2), part(t.o, 0),
                           t.logsumexp, scale);
      };
    });
  }

  void cross_entropy() {
    // A chunk of logits, as linear_cross_entropy has it.
    const std::int64_t N = std::min<std::int64_t>(sizes_.tokens, 4096), V = sizes_.vocab_size;
    const std::string shape = fmt::format("{} x {}", N, V);
    const double logits = elements(N, V) * size(dtype_);
    const auto operands = [=, dtype = dtype_] {
      struct {
        Tensor logits, loss, logsumexp, dloss, targets;
      } t{noise({N, V}, dtype), Tensor::empty({N}, DType::f32), Tensor::full({N}, DType::f32, 11.0),
          Tensor::full({N}, DType::f32, 1.0), ids(N, V)};
      return t;
    };
    memory_bound("cross_entropy_forward", shape, logits, [=] {
      return [t = operands()] { cross_entropy_forward(t.loss, t.logsumexp, t.logits, t.targets); };
    });
    memory_bound("cross_entropy_backward", shape, 2 * logits, [=, dtype = dtype_] {
      return [t = operands(), d = Tensor::empty({N, V}, dtype)] {
        cross_entropy_backward(d, t.dloss, t.logits, t.logsumexp, t.targets);
      };
    });
  }

  /// On the weights of one transformer block of the last width.
  void optimizer() {
    const std::int64_t C = sizes_.widths.back(), n = 12 * C * C;
    const std::string shape = fmt::format("{}", n);
    memory_bound("adamw", shape, 28.0 * static_cast<double>(n), [=] {
      const auto range = [n] { return noise({n}, DType::f32); };
      const std::vector<AdamWTensors> tensors = {{.p = range(),
                                                  .m = Tensor::zeros({n}, DType::f32),
                                                  .v = Tensor::zeros({n}, DType::f32),
                                                  .gradient = range()}};
      return [tensors] { adamw(tensors, {}); };
    });
    memory_bound("gradient_norm", shape, 8.0 * static_cast<double>(n), [=] {
      return [x = std::vector{noise({n}, DType::f32)}, norm = GradientNorm::empty()] {
        largest_magnitude(norm, x);
        sum_of_squares(norm, x);
      };
    });
  }

  const KernelSizes sizes_;
  const DType dtype_;
  std::vector<KernelCase> cases_;
};

}  // namespace

Tensor noise(const Shape& shape, DType dtype) {
  // Repeats after 64 Ki elements.
  static const std::vector<float> pattern = [] {
    const RandomStream random(0, "bench");
    std::vector<float> values(std::size_t{1} << 16);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = random.uniform(i) - 0.5f;
    return values;
  }();
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = pattern[i % pattern.size()];
  const Tensor wide = Tensor::from(values, shape);
  if (dtype == DType::f32) return wide;
  const Tensor narrow = Tensor::empty(shape, dtype);
  cast(narrow, wide);
  return narrow;
}

std::vector<KernelCase> kernel_cases(const KernelSizes& sizes, DType dtype) {
  return Cases(sizes, dtype).all();
}

}  // namespace tessera
