// The arguments of attention's kernels, and the part of the work that each block takes.
#pragma once

#include "kernels/attention/cuda/launchers.h"
#include "kernels/attention/cuda/schedule.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"
#include "kernels/rope/device.h"

namespace tessera::cuda::attention {

inline constexpr float kLog2E = 1.44269504f;  // 1 / ln 2
inline constexpr float kLn2 = 0.69314718f;

/// `index`, for addresses that are to be computed where they are used (gpu::unhoisted).
__device__ inline int unhoisted(int index) {
  return static_cast<int>(gpu::unhoisted(static_cast<unsigned>(index)));
}

/// The rows of one head of one batch element, one per token.
template <typename T>
struct Rows {
  T* data;
  std::int64_t stride;
  int channels;

  __device__ T* operator[](int token) const { return data + token * stride; }
};

/// Heads of a tensor in device memory.
template <typename T>
struct DeviceHeads {
  T* data;
  std::int64_t batch_stride, token_stride;
  int head_size;

  explicit DeviceHeads(const Heads& x)
      : data(x.tensor.data<T>() + x.offset),
        batch_stride(x.batch_stride),
        token_stride(x.token_stride),
        head_size(static_cast<int>(x.head_size)) {}
  __device__ Rows<T> rows(int batch, int head) const {
    return {data + batch * batch_stride + static_cast<std::int64_t>(head) * head_size, token_stride,
            head_size};
  }
};

struct Extents {
  int batch, heads, kv_heads, queries, keys, head_size;
  float scale;

  Extents(const Heads& q, const Heads& k, float factor)
      : batch(static_cast<int>(q.batch)),
        heads(static_cast<int>(q.heads)),
        kv_heads(static_cast<int>(k.heads)),
        queries(static_cast<int>(q.tokens)),
        keys(static_cast<int>(k.tokens)),
        head_size(static_cast<int>(q.head_size)),
        scale(factor) {}
  /// Query heads that read one key/value head.
  __host__ __device__ int group() const { return heads / kv_heads; }
  /// Query i sees keys 0 .. i + shift().
  __host__ __device__ int shift() const { return keys - queries; }
  /// Turns products of queries and keys into scores in base 2: exp(scale x) = exp2(scale_log2 x).
  __host__ __device__ float scale_log2() const { return scale * kLog2E; }
};

/// Two numbers per query that backward reads next to its rows, in order batch, head, query. The
/// queries of a head are padded to whole tiles with {infinity, 0}, which makes P and dS zero.
struct QueryStatistics {
  float logsumexp;  // in base 2
  float delta;      // D = sum(dO * O)
};
inline constexpr int kStatisticsPadding = 64;
/// Numbers behind the last head's: a kernel that begins at any query reads tiles of up to 128, in pairs.
inline constexpr int kStatisticsSlack = 128 + 2;

__host__ __device__ inline int padded_queries(int queries) {
  return (queries + kStatisticsPadding - 1) / kStatisticsPadding * kStatisticsPadding;
}

template <typename T>
struct ForwardArguments {
  DeviceHeads<T> o;
  float* logsumexp;
  DeviceHeads<T> q, k, v;
  Extents extents;
  Runs runs;

  explicit ForwardArguments(const ForwardCall& x)
      : o(x.o),
        logsumexp(x.logsumexp.data<float>()),
        q(x.q),
        k(x.k),
        v(x.v),
        extents(x.q, x.k, x.scale),
        runs(x.runs.runs()) {}
};

template <typename T>
struct BackwardArguments {
  DeviceHeads<T> dq, dk, dv, d_o, q, k, v, o;
  const float* logsumexp;
  QueryStatistics* statistics;  // workspace
  Extents extents;
  Runs runs;
  DeviceRotary rotation;  // how dQ and dK are rotated back before they are stored
  float* lines;           // sums of rows (row_sums.h), or null

  BackwardArguments(const BackwardCall& x, const Tensor& workspace)
      : dq(x.dq),
        dk(x.dk),
        dv(x.dv),
        d_o(x.d_o),
        q(x.q),
        k(x.k),
        v(x.v),
        o(x.o),
        logsumexp(x.logsumexp.data<float>()),
        statistics(reinterpret_cast<QueryStatistics*>(workspace.data<float>())),
        extents(x.q, x.k, x.scale),
        runs(x.runs.runs()),
        rotation(x.rotary != nullptr ? DeviceRotary(*x.rotary) : DeviceRotary()),
        lines(x.lines.defined() ? x.lines.data<float>() : nullptr) {}
  /// The statistics of one head's queries.
  __device__ QueryStatistics* statistics_of(int batch, int head) const {
    return statistics + (static_cast<std::int64_t>(batch) * extents.heads + head) *
                            padded_queries(extents.queries);
  }
  /// The sums of the token's line for a head of dQ, dK or dV, which are counted one after the other. Null if the
  /// line has no token.
  __device__ float* line_of(int batch, int token, int head) const {
    const Extents& n = extents;
    const int line = token / kTokensOfLine, count = (n.queries - 1) / kTokensOfLine + 1;
    if (line >= count) return nullptr;
    const std::int64_t number = std::int64_t{batch} * count + line;
    return lines + (number * (n.heads + 2 * n.kv_heads) + head) * n.head_size;
  }
};

/// A block that owns `rows` queries of one head, from first_query on, and visits the keys that they
/// see. The last queries see the most keys: their tiles are the longest.
struct QueryBlock {
  int all_head, batch, head, kv_head, rows, first_query;

  __device__ QueryBlock(const Extents& n, const Schedule& schedule, int rows_of_tile)
      : QueryBlock(n, schedule, rows_of_tile, gpu::unhoisted(blockIdx.x)) {}
  __device__ QueryBlock(const Extents& n, const Schedule& schedule, int rows_of_tile,
                        unsigned number)
      : rows(rows_of_tile) {
    const Schedule::Place place = schedule.place_of(number);
    all_head = place.head;
    batch = all_head / n.heads, head = all_head % n.heads, kv_head = head / n.group();
    first_query = (static_cast<int>(schedule.tiles) - 1 - place.turn) * rows;
  }
  __device__ int first() const { return first_query; }
  __device__ int end(const Extents& n) const { return min(first_query + rows, n.queries); }
  /// The end of the keys that the block's queries before `end_query` see.
  __device__ int visible_keys(const Extents& n, int end_query) const {
    return min(first_query + rows, end_query) + n.shift();
  }
};

/// A block that owns keys [first_key, first_key + rows) of one key/value head and visits the queries
/// that see them, of all query heads in the group. The first keys are seen by the most queries.
struct KeyBlock {
  int batch, kv_head, rows, first_key;

  __device__ KeyBlock(const Extents& n, const Schedule& schedule, int rows_of_tile)
      : KeyBlock(n, schedule, rows_of_tile, gpu::unhoisted(blockIdx.x)) {}
  __device__ KeyBlock(const Extents& n, const Schedule& schedule, int rows_of_tile, unsigned number)
      : rows(rows_of_tile) {
    const Schedule::Place place = schedule.place_of(number);
    batch = place.head / n.kv_heads, kv_head = place.head % n.kv_heads;
    first_key = place.turn * rows;
  }
  __device__ int first() const { return first_key; }
  __device__ int end(const Extents& n) const { return min(first_key + rows, n.keys); }
};

}  // namespace tessera::cuda::attention
