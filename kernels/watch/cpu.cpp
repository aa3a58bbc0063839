#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/attention/first_key.h"
#include "kernels/attention/tiles.h"
#include "kernels/cpu/magnitude.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/watch/op.h"
#include "runtime/elementary.h"

namespace tessera::cpu {
namespace {

/// Elements, and tokens, of a task.
constexpr std::int64_t kElements = 1 << 16, kTokens = 32;
constexpr std::int64_t kTile = kAttentionTile;

/// The bits of x, or 0 if x is negative.
template <typename C>
std::int32_t bits_from_zero(C x) {
  return x < C{0} ? 0 : bits_of_magnitude(x);
}

/// The scores of a block of queries with a tile of keys.
template <typename C>
struct LogitScratch {
  SmallProduct<C> multiply;
  Matrix<C> query_columns;  // [head_size][lane], scaled
  Matrix<C> keys;           // [key][head_size]
  Matrix<C> scores;         // [key][lane]

  LogitScratch(C* data, std::int64_t head_size) : multiply(matmul_options().isa) {
    const std::int64_t width = whole_vectors<C>(head_size);
    ScratchCutter<C> cutter(data);
    query_columns = {cutter.take(head_size * kTile), kTile};
    keys = {cutter.take(kTile * width), width};
    scores = {cutter.take(kTile * kTile), kTile};
  }
  static std::int64_t elements(std::int64_t head_size) {
    return kTile * (2 * whole_vectors<C>(head_size) + kTile);
  }
};

template <typename C>
std::int32_t largest_of_tile(const LogitScratch<C>& s, const TilePosition& tile,
                             std::int64_t head_size) {
  std::int32_t largest = 0;
  run([&] {
    s.multiply(s.scores, s.keys, s.query_columns,
               {.rows = tile.keys, .columns = whole_vectors<C>(tile.queries), .depth = head_size},
               Accumulate::no);
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      const C* const score = s.scores.row(j);
#pragma omp simd reduction(max : largest)
      for (std::int64_t i = tile.hidden(j); i < tile.queries; ++i) {
        largest = std::max(largest, bits_from_zero(score[i]));
      }
    }
  });
  return largest;
}

/// The bits of the largest logit of queries with one first key.
template <typename T>
std::int32_t largest_of_run(const Matrix<T>& q, const Matrix<T>& k, const QueryRun& run,
                            std::int64_t shift, std::int64_t head_size, compute_t<T> scale,
                            const LogitScratch<compute_t<T>>& s) {
  std::int32_t largest = 0;
  const std::int64_t end = run.first_query + run.queries;
  TilePosition tile{.first_query = run.first_query, .shift = shift};
  for (; tile.first_query < end; tile.first_query += kTile) {
    tile.queries = std::min(kTile, end - tile.first_query);
    load_columns(s.query_columns, q.from(tile.first_query, 0), tile.queries, head_size, scale);
    const std::int64_t visible = tile.first_query + tile.queries + shift;
    for (tile.first_key = run.first_key; tile.first_key < visible; tile.first_key += kTile) {
      tile.keys = std::min(kTile, visible - tile.first_key);
      load_rows(s.keys, k.from(tile.first_key, 0), tile.keys, head_size);
      largest = std::max(largest, largest_of_tile(s, tile, head_size));
    }
  }
  return largest;
}

/// The entropy of softmax(logits): log(sum of e^d) - (sum of d e^d) / (sum of e^d), with d relative to the
/// largest logit.
template <typename T>
double entropy(const T* logits, std::int64_t experts) {
  using C = compute_t<T>;
  C maximum = load(logits[0]);
  for (std::int64_t e = 1; e < experts; ++e) maximum = std::max(maximum, load(logits[e]));
  double sum = 0.0, weighted = 0.0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const C d = load(logits[e]) - maximum;
    const double power = exponential(d);
    sum += power;
    weighted += static_cast<double>(d) * power;
  }
  return logarithm(sum) - weighted / sum;
}

}  // namespace

void raise_to_magnitude(Out largest, const Tensor& x) {
  visit_floating(x.dtype(), [&](auto type) {
    const auto* const values = x.data<decltype(type)>();
    parallel_for(x.numel(), kElements, [&](std::int64_t begin, std::int64_t end) {
      std::int32_t most = 0;
#pragma omp simd reduction(max : most)
      for (std::int64_t i = begin; i < end; ++i) {
        most = std::max(most, bits_of_magnitude(load(values[i])));
      }
      raise(*largest.data<float>(), most);
    });
  });
}

void raise_to_attention_logit(Out largest, const Heads& q, const Heads& k, float scale,
                              const Tensor& first_key) {
  visit_floating(q.tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    const std::int64_t tasks = q.batch * q.heads, group = q.heads / k.heads;
    ScratchPool<C> pool(LogitScratch<C>::elements(q.head_size), tasks);
    tessera::parallel_for(tasks, 1, [&](std::int64_t task, std::int64_t) {
      const typename ScratchPool<C>::Piece piece(pool);
      const LogitScratch<C> scratch(piece.data(), q.head_size);
      const std::int64_t batch = task / q.heads, head = task % q.heads;
      for (const QueryRun& run : query_runs(first_key, batch, q.tokens)) {
        raise(largest.data<float>()[head],
              largest_of_run<T>(head_rows<T>(q, batch, head), head_rows<T>(k, batch, head / group),
                                run, k.tokens - q.tokens, q.head_size, scale, scratch));
      }
    });
  });
}

void add_router_entropy(Out sum, const Tensor& logits) {
  visit_floating(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t experts = logits.size(1);
    parallel_for(logits.size(0), kTokens, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t units = 0, rows = 0;
      for (std::int64_t n = begin; n < end; ++n) {
        const double bits = entropy(logits.data<T>() + n * experts, experts);
        if (!std::isfinite(bits)) continue;
        units += std::llround(bits / kEntropyUnit);
        ++rows;
      }
      auto* const to = sum.data<std::int64_t>();
      std::atomic_ref(to[0]).fetch_add(units, std::memory_order_relaxed);
      std::atomic_ref(to[1]).fetch_add(rows, std::memory_order_relaxed);
    });
  });
}

}  // namespace tessera::cpu
