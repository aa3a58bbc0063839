#include <algorithm>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_chunks.h"
#include "kernels/qk_norm/op.h"
#include "kernels/rms_norm/row.h"
#include "kernels/rope/row.h"

namespace tessera::cpu {
namespace {

template <RopePairs pairs, typename T>
void forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, const Rotary& rotary,
             std::int64_t heads, std::int64_t kv_heads, float epsilon, float offset) {
  using C = compute_t<T>;
  const std::int64_t D = weight.numel() / 2, all = heads + kv_heads;
  const T *inputs = x.data<T>(), *weights = weight.data<T>();
  T* const outputs = y.data<T>();
  C* const rstds = rstd.data<C>();
  const C *cosines = rotary.table.cosine.data<C>(), *sines = rotary.table.sine.data<C>();
  constexpr std::int64_t kChunk = 16;  // tokens
  parallel_for(x.size(0) * x.size(1), kChunk, [&](std::int64_t begin, std::int64_t end) {
    std::vector<C> normalized(static_cast<std::size_t>(D));
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int64_t angles = position_of(rotary.positions, n % x.size(1), n) * (D / 2);
      for (std::int64_t h = 0; h < all; ++h) {
        const T* const head = inputs + n * x.size(2) + h * D;
        C& statistic = rstds[n * all + h];
        statistic = row_rstd(head, D, epsilon);
        normalize_row(normalized.data(), head, weights + (h < heads ? 0 : D), C{offset}, statistic,
                      D);
        turn_head<pairs>(outputs + n * y.size(2) + h * D, normalized.data(), cosines + angles,
                         sines + angles, D / 2, C{1});
      }
    }
  });
}

/// The heads [first, first + count) of all tokens, as rows.
struct HeadRows {
  std::int64_t first, count;

  std::int64_t rows(const Tensor& x) const { return x.size(0) * x.size(1) * count; }
  std::int64_t token(std::int64_t row) const { return row / count; }
  std::int64_t head(std::int64_t row) const { return first + row % count; }
};

/// Computes dx of these heads, and adds their part of dweight [D] if it is defined.
template <typename T>
void backward(const HeadRows& of, Out dx, Out dweight, const Tensor& x, const Tensor& weight,
              const Tensor& rstd, Accumulate accumulate, float offset) {
  using C = compute_t<T>;
  const std::int64_t D = weight.numel(), rows = of.rows(x), chunk = rows_per_chunk(rows);
  const CategoryScope scope(Category::workspace);
  const Tensor partials = Tensor::empty({chunk_count(rows, chunk), D}, dtype_of<C>);
  C* const sums = partials.data<C>();
  T* const gradients = dx.data<T>();
  const T *inputs = x.data<T>(), *weights = weight.data<T>();
  const C* const rstds = rstd.data<C>();
  parallel_for(rows, chunk, [&](std::int64_t begin, std::int64_t end) {
    C* const line = sums + begin / chunk * D;
    std::fill(line, line + D, C{0});
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = of.token(row), h = of.head(row);
      T* const gradient = gradients + n * dx.size(2) + h * D;
      differentiate_row(gradient, line, gradient, inputs + n * x.size(2) + h * D, weights,
                        C{offset}, rstds[n * rstd.size(2) + h], D);
    }
  });
  if (!dweight.defined()) return;
  visit_floating(dweight.dtype(), [&](auto type) {
    add_partials(dweight.data<decltype(type)>(), sums, partials.size(0), D, D, accumulate);
  });
}

}  // namespace

void qk_norm_forward(Out y, Out rstd, const Tensor& x, const Tensor& weight, const Rotary& rotary,
                     std::int64_t heads, std::int64_t kv_heads, float epsilon, float offset) {
  check_each("qk_norm_forward", rotary.positions, rotary.table.cosine.size(0));
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool split = rotary.table.pairs == RopePairs::half_split;
    const auto run = split ? forward<RopePairs::half_split, T> : forward<RopePairs::interleaved, T>;
    run(y, rstd, x, weight, rotary, heads, kv_heads, epsilon, offset);
  });
}

void qk_norm_backward(Out dx, Out dweight, const Tensor& x, const Tensor& weight,
                      const Tensor& rstd, std::int64_t heads, std::int64_t kv_heads,
                      Accumulate accumulate_parameters, const HeadGroup& group, float offset) {
  visit_floating(x.dtype(), [&](auto type) {
    const std::int64_t queries = heads / group.count, keys = kv_heads / group.count;
    const HeadRows of_kinds[] = {{group.number * queries, queries},
                                 {heads + group.number * keys, keys}};
    for (std::int64_t kind = 0; kind < 2; ++kind) {
      const auto part = [&](const Tensor& both) {
        const std::int64_t D = weight.numel() / 2;
        return both.defined() ? both.slice(kind * D, (kind + 1) * D) : both;
      };
      backward<decltype(type)>(of_kinds[kind], dx, part(dweight), x, part(weight), rstd,
                               accumulate_parameters, offset);
    }
  });
}

}  // namespace tessera::cpu
