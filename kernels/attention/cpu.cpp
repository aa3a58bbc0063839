#include <limits>
#include <vector>

#include "kernels/attention/first_key.h"
#include "kernels/attention/op.h"
#include "kernels/attention/tiles.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/matmul/options.h"
#include "kernels/rope/op.h"
#include "runtime/elementary.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kTile = kAttentionTile;

// ---- Forward: a task is a block of queries of one head; it visits the keys in tiles. ----

template <typename C>
struct ForwardScratch {
  SmallProduct<C> multiply;
  Matrix<C> query_columns;   // [head_size][lane], scaled
  Matrix<C> keys;            // [key][head_size]
  Matrix<C> values;          // [key][head_size]
  Matrix<C> scores;          // [key][lane]
  Matrix<C> output_columns;  // [head_size][lane]: the sum of p * v so far, relative to `maximum`
  C* maximum;                // [lane]: of the scores so far
  C* sum;                    // [lane]: of exp(score - maximum) so far
  C* correction;             // [lane]: the former maximum, then the factor of the older sums

  ForwardScratch(C* data, std::int64_t head_size) : multiply(matmul_options().isa) {
    ScratchCutter<C> cutter(data);
    query_columns = {cutter.take(head_size * kTile), kTile};
    output_columns = {cutter.take(head_size * kTile), kTile};
    keys = {cutter.take(kTile * whole_vectors<C>(head_size)), whole_vectors<C>(head_size)};
    values = {cutter.take(kTile * whole_vectors<C>(head_size)), whole_vectors<C>(head_size)};
    scores = {cutter.take(kTile * kTile), kTile};
    maximum = cutter.take(kTile);
    sum = cutter.take(kTile);
    correction = cutter.take(kTile);
  }
  static std::int64_t elements(std::int64_t head_size) {
    return kTile * (4 * whole_vectors<C>(head_size) + kTile + 3);
  }
};

/// Hides the scores of a band that queries do not see, and raises the maximum to the others.
template <typename C>
void raise_maximum(const ForwardScratch<C>& s, const TilePosition& tile, const Band& band,
                   std::int64_t lanes) {
  C* const maximum = s.maximum;
  for (std::int64_t j = band.begin; j < band.end; ++j) {
    C* const score = s.scores.row(j);
    std::fill(score + band.first_lane, score + tile.hidden(j), -std::numeric_limits<C>::infinity());
#pragma omp simd
    for (std::int64_t i = band.first_lane; i < lanes; ++i) {
      maximum[i] = score[i] > maximum[i] ? score[i] : maximum[i];
    }
  }
}

/// The factors that make older sums relative to the new maximum.
template <typename C>
void correct(const ForwardScratch<C>& s, std::int64_t lanes, std::int64_t head_size) {
  C* const correction = s.correction;
#pragma omp simd
  for (std::int64_t i = 0; i < lanes; ++i) {
    correction[i] = exponential(correction[i] - s.maximum[i]);
    s.sum[i] *= correction[i];
  }
  for (std::int64_t c = 0; c < head_size; ++c) {
    C* const output = s.output_columns.row(c);
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) output[i] *= correction[i];
  }
}

/// Turns the scores of a band into exp(score - maximum).
template <typename C>
void exponentiate(const ForwardScratch<C>& s, const Band& band, std::int64_t lanes) {
  const C* const maximum = s.maximum;
  C* const sum = s.sum;
  for (std::int64_t j = band.begin; j < band.end; ++j) {
    C* const score = s.scores.row(j);
#pragma omp simd
    for (std::int64_t i = band.first_lane; i < lanes; ++i) {
      score[i] = exponential(score[i] - maximum[i]);
      sum[i] += score[i];
    }
  }
}

template <typename C>
void visit_keys(const ForwardScratch<C>& s, const TilePosition& tile, std::int64_t head_size) {
  run([&] {
    const std::int64_t lanes = whole_vectors<C>(tile.queries);
    std::copy_n(s.maximum, lanes, s.correction);
    for_each_band<C>(tile, [&](const Band& band) {
      s.multiply(s.scores.from(band.begin, band.first_lane), s.keys.from(band.begin, 0),
                 s.query_columns.from(0, band.first_lane),
                 {.rows = band.keys(), .columns = lanes - band.first_lane, .depth = head_size},
                 Accumulate::no);
      raise_maximum(s, tile, band, lanes);
    });
    correct(s, lanes, head_size);
    for_each_band<C>(tile, [&](const Band& band) {
      exponentiate(s, band, lanes);
      s.multiply(s.output_columns.from(0, band.first_lane),
                 s.values.from(band.begin, 0).transposed(),
                 s.scores.from(band.begin, band.first_lane),
                 {.rows = head_size, .columns = lanes - band.first_lane, .depth = band.keys()},
                 Accumulate::yes);
    });
  });
}

/// After the last tile: logsumexp, and the output relative to the sums.
template <typename C>
void divide_by_sums(const ForwardScratch<C>& s, C* logsumexp, std::int64_t queries,
                    std::int64_t head_size) {
  for (std::int64_t i = 0; i < queries; ++i) {
    logsumexp[i] = s.maximum[i] + static_cast<C>(logarithm(s.sum[i]));
    s.sum[i] = C{1} / s.sum[i];
  }
  for (std::int64_t c = 0; c < head_size; ++c) {
    C* const column = s.output_columns.row(c);
#pragma omp simd
    for (std::int64_t i = 0; i < queries; ++i) column[i] *= s.sum[i];
  }
}

template <typename T>
void forward_block(const Heads& o, compute_t<T>* logsumexp, const Heads& q, const Heads& k,
                   const Heads& v, compute_t<T> scale, std::int64_t batch, std::int64_t head,
                   TilePosition tile, const ForwardScratch<compute_t<T>>& s) {
  using C = compute_t<T>;
  const std::int64_t head_size = q.head_size, kv_head = head / (q.heads / k.heads);
  load_columns(s.query_columns, head_rows<T>(q, batch, head).from(tile.first_query, 0),
               tile.queries, head_size, scale);
  std::fill_n(s.output_columns.data, head_size * kTile, C{0});
  std::fill_n(s.maximum, kTile, -std::numeric_limits<C>::infinity());
  std::fill_n(s.sum, kTile, C{0});
  const std::int64_t visible = tile.first_query + tile.queries + tile.shift;
  for (; tile.first_key < visible; tile.first_key += kTile) {
    tile.keys = std::min(kTile, visible - tile.first_key);
    load_rows(s.keys, head_rows<T>(k, batch, kv_head).from(tile.first_key, 0), tile.keys,
              head_size);
    load_rows(s.values, head_rows<T>(v, batch, kv_head).from(tile.first_key, 0), tile.keys,
              head_size);
    visit_keys(s, tile, head_size);
  }
  const Matrix<T> output = head_rows<T>(o, batch, head).from(tile.first_query, 0);
  run([&] { divide_by_sums(s, logsumexp + tile.first_query, tile.queries, head_size); });
  store_columns(output, s.output_columns, tile.queries, head_size);
}

/// A block of queries of one head, with the first tile of keys that it sees.
struct ForwardTask {
  std::int64_t batch, head;
  TilePosition tile;
};

/// Every run's blocks begin at its first query. The last blocks of a run see the most keys. They
/// come first, so that no thread ends with a long one.
std::vector<ForwardTask> forward_tasks(const Heads& q, const Heads& k, const Tensor& first_key) {
  std::vector<ForwardTask> tasks;
  for (std::int64_t batch = 0; batch < q.batch; ++batch) {
    const std::vector<QueryRun> runs = query_runs(first_key, batch, q.tokens);
    for (std::int64_t head = 0; head < q.heads; ++head) {
      for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
        for (std::int64_t block = chunk_count(run->queries, kTile) - 1; block >= 0; --block) {
          tasks.push_back({batch,
                           head,
                           {.first_query = run->first_query + block * kTile,
                            .queries = std::min(kTile, run->queries - block * kTile),
                            .first_key = run->first_key,
                            .shift = k.tokens - q.tokens}});
        }
      }
    }
  }
  return tasks;
}

template <typename T>
void forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k, const Heads& v,
             compute_t<T> scale, const Tensor& first_key) {
  using C = compute_t<T>;
  const std::vector<ForwardTask> tasks = forward_tasks(q, k, first_key);
  const auto count = static_cast<std::int64_t>(tasks.size());
  ScratchPool<C> pool(ForwardScratch<C>::elements(q.head_size), count);
  C* const all_logsumexp = logsumexp.data<C>();
  tessera::parallel_for(count, 1, [&](std::int64_t i, std::int64_t) {
    const typename ScratchPool<C>::Piece piece(pool);
    const ForwardScratch<C> scratch(piece.data(), q.head_size);
    const ForwardTask& task = tasks[static_cast<std::size_t>(i)];
    const std::int64_t row = task.batch * q.heads + task.head;
    forward_block<T>(o, all_logsumexp + row * q.tokens, q, k, v, scale, task.batch, task.head,
                     task.tile, scratch);
  });
}

// ---- Backward: a task is one key/value head with all query heads that read it. ----

template <typename C>
struct BackwardScratch {
  SmallProduct<C> multiply;
  // For the whole sequence.
  Matrix<C> keys, values, d_keys, d_values;  // [key][head_size]
  // For a block of queries.
  Matrix<C> queries, d_output, d_queries;     // [lane][head_size]; queries are scaled
  Matrix<C> query_columns, d_output_columns;  // [head_size][lane]
  C* logsumexp;                               // [lane]
  C* delta;                                   // [lane]: sum(dO * O)
  // For a tile.
  Matrix<C> scores, d_scores;  // [key][lane]

  BackwardScratch(C* data, std::int64_t tokens, std::int64_t head_size)
      : multiply(matmul_options().isa) {
    const std::int64_t width = whole_vectors<C>(head_size);
    ScratchCutter<C> cutter(data);
    for (Matrix<C>* rows : {&keys, &values, &d_keys, &d_values}) {
      *rows = {cutter.take(tokens * width), width};
    }
    for (Matrix<C>* rows : {&queries, &d_output, &d_queries}) {
      *rows = {cutter.take(kTile * width), width};
    }
    for (Matrix<C>* columns : {&query_columns, &d_output_columns}) {
      *columns = {cutter.take(head_size * kTile), kTile};
    }
    for (Matrix<C>* square : {&scores, &d_scores}) *square = {cutter.take(kTile * kTile), kTile};
    logsumexp = cutter.take(kTile);
    delta = cutter.take(kTile);
  }
  static std::int64_t elements(std::int64_t tokens, std::int64_t head_size) {
    const std::int64_t width = ScratchCutter<C>::aligned(whole_vectors<C>(head_size));
    return (4 * tokens + 5 * kTile) * width + 2 * kTile * (kTile + 1);
  }
};

/// P = exp(S - logsumexp) in place of a band's S, and dS = P * (dP - D) in place of dP.
template <typename C>
void differentiate_softmax(const BackwardScratch<C>& s, const TilePosition& tile, const Band& band,
                           std::int64_t lanes) {
  const C* const logsumexp = s.logsumexp;
  const C* const delta = s.delta;
  for (std::int64_t j = band.begin; j < band.end; ++j) {
    C* const score = s.scores.row(j);
    C* const d_score = s.d_scores.row(j);
    const std::int64_t hidden = tile.hidden(j);
#pragma omp simd
    for (std::int64_t i = band.first_lane; i < lanes; ++i) {
      const C p = exponential(score[i] - logsumexp[i]);
      score[i] = i < hidden ? C{0} : p;
      d_score[i] = i < hidden ? C{0} : p * (d_score[i] - delta[i]);
    }
  }
}

template <typename C>
void visit_keys(const BackwardScratch<C>& s, const TilePosition& tile, std::int64_t head_size) {
  run([&] {
    const std::int64_t lanes = whole_vectors<C>(tile.queries);
    for_each_band<C>(tile, [&](const Band& band) {
      const std::int64_t key = tile.first_key + band.begin;
      const ProductExtent extent{
          .rows = band.keys(), .columns = lanes - band.first_lane, .depth = head_size};
      s.multiply(s.scores.from(band.begin, band.first_lane), s.keys.from(key, 0),
                 s.query_columns.from(0, band.first_lane), extent, Accumulate::no);
      s.multiply(s.d_scores.from(band.begin, band.first_lane), s.values.from(key, 0),
                 s.d_output_columns.from(0, band.first_lane), extent, Accumulate::no);
      differentiate_softmax(s, tile, band, lanes);
    });
    for_each_band<C>(tile, [&](const Band& band) {
      const std::int64_t key = tile.first_key + band.begin, first = band.first_lane;
      const ProductExtent extent{
          .rows = band.keys(), .columns = head_size, .depth = tile.queries - first};
      s.multiply(s.d_values.from(key, 0), s.scores.from(band.begin, first),
                 s.d_output.from(first, 0), extent, Accumulate::yes);
      s.multiply(s.d_keys.from(key, 0), s.d_scores.from(band.begin, first),
                 s.queries.from(first, 0), extent, Accumulate::yes);
      s.multiply(s.d_queries.from(first, 0), s.d_scores.from(band.begin, first).transposed(),
                 s.keys.from(key, 0),
                 {.rows = tile.queries - first, .columns = head_size, .depth = band.keys()},
                 Accumulate::yes);
    });
  });
}

/// Loads a block of queries: Q and dO, also transposed, logsumexp and D.
template <typename T>
void load_queries(const BackwardScratch<compute_t<T>>& s, const TilePosition& tile,
                  const Matrix<T>& q, const Matrix<T>& o, const Matrix<T>& d_o,
                  const compute_t<T>* logsumexp, std::int64_t head_size, compute_t<T> scale) {
  using C = compute_t<T>;
  load_rows(s.queries, q, tile.queries, head_size, scale);
  load_rows(s.d_output, d_o, tile.queries, head_size);
  load_columns(s.query_columns, s.queries, tile.queries, head_size);
  load_columns(s.d_output_columns, s.d_output, tile.queries, head_size);
  std::fill_n(s.logsumexp, kTile, C{0});
  std::fill_n(s.delta, kTile, C{0});
  std::copy_n(logsumexp, tile.queries, s.logsumexp);
  run([&] {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
      const T* const output = o.row(i);
      const C* const d_output = s.d_output.row(i);
      s.delta[i] =
          sum_of<C>(head_size, [&](std::int64_t c) { return load(output[c]) * d_output[c]; });
    }
  });
}

struct BackwardArguments {
  const Heads &dq, &dk, &dv, &d_o, &q, &k, &v, &o;
  const Tensor &logsumexp, &first_key;
};

/// Adds one run's part to dK and dV, and writes its dQ.
template <typename T>
void backward_run(const BackwardArguments& x, compute_t<T> scale, std::int64_t batch,
                  std::int64_t head, const QueryRun& run, const BackwardScratch<compute_t<T>>& s) {
  const std::int64_t head_size = x.q.head_size, end = run.first_query + run.queries;
  const compute_t<T>* const logsumexp =
      x.logsumexp.data<compute_t<T>>() + (batch * x.q.heads + head) * x.q.tokens;
  TilePosition tile{.first_query = run.first_query, .shift = x.k.tokens - x.q.tokens};
  for (; tile.first_query < end; tile.first_query += kTile) {
    const auto rows = [&](const Heads& heads) {
      return head_rows<T>(heads, batch, head).from(tile.first_query, 0);
    };
    tile.queries = std::min(kTile, end - tile.first_query);
    load_queries(s, tile, rows(x.q), rows(x.o), rows(x.d_o), logsumexp + tile.first_query,
                 head_size, scale);
    std::fill_n(s.d_queries.data, kTile * s.d_queries.row_stride, 0);
    const std::int64_t visible = tile.first_query + tile.queries + tile.shift;
    for (tile.first_key = run.first_key; tile.first_key < visible; tile.first_key += kTile) {
      tile.keys = std::min(kTile, visible - tile.first_key);
      visit_keys(s, tile, head_size);
    }
    store_rows(rows(x.dq), s.d_queries, tile.queries, head_size, scale);
  }
}

template <typename T>
void backward_head(const BackwardArguments& x, compute_t<T> scale, std::int64_t batch,
                   std::int64_t kv_head, const BackwardScratch<compute_t<T>>& s) {
  using C = compute_t<T>;
  const Heads &q = x.q, &k = x.k;
  const std::int64_t head_size = q.head_size, group = q.heads / k.heads;
  load_rows(s.keys, head_rows<T>(k, batch, kv_head), k.tokens, head_size);
  load_rows(s.values, head_rows<T>(x.v, batch, kv_head), k.tokens, head_size);
  std::fill_n(s.d_keys.data, k.tokens * s.d_keys.row_stride, C{0});
  std::fill_n(s.d_values.data, k.tokens * s.d_values.row_stride, C{0});
  const std::vector<QueryRun> runs = query_runs(x.first_key, batch, q.tokens);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (const QueryRun& run : runs) backward_run<T>(x, scale, batch, head, run, s);
  }
  store_rows(head_rows<T>(x.dk, batch, kv_head), s.d_keys, k.tokens, head_size);
  store_rows(head_rows<T>(x.dv, batch, kv_head), s.d_values, k.tokens, head_size);
}

template <typename T>
void backward(const BackwardArguments& x, compute_t<T> scale) {
  using C = compute_t<T>;
  const std::int64_t tokens = x.k.tokens, head_size = x.k.head_size;
  const std::int64_t tasks = x.k.batch * x.k.heads;
  ScratchPool<C> pool(BackwardScratch<C>::elements(tokens, head_size), tasks);
  tessera::parallel_for(tasks, 1, [&](std::int64_t task, std::int64_t) {
    const typename ScratchPool<C>::Piece piece(pool);
    const BackwardScratch<C> scratch(piece.data(), tokens, head_size);
    backward_head<T>(x, scale, task / x.k.heads, task % x.k.heads, scratch);
  });
}

}  // namespace

void attention_forward(const Heads& o, Out logsumexp, const Heads& q, const Heads& k,
                       const Heads& v, float scale, const Tensor& first_key) {
  visit_floating(q.tensor.dtype(), [&](auto type) {
    forward<decltype(type)>(o, logsumexp, q, k, v, scale, first_key);
  });
}

void attention_backward(const Heads& dq, const Heads& dk, const Heads& dv, const Heads& d_o,
                        const Heads& q, const Heads& k, const Heads& v, const Heads& o,
                        const Tensor& logsumexp, float scale, const Tensor& first_key,
                        const Rotary* rotary, Tensor* row_sums) {
  if (row_sums != nullptr) *row_sums = {};
  visit_floating(q.tensor.dtype(), [&](auto type) {
    backward<decltype(type)>({dq, dk, dv, d_o, q, k, v, o, logsumexp, first_key}, scale);
  });
  if (rotary != nullptr) rope_backward(dq, dk, *rotary);
}

}  // namespace tessera::cpu
