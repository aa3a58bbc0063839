// Rung 5, AVX-512: the same program in vectors of 16 floats.
#include <algorithm>
#include <limits>

#include "examples/kernel_ladder/attention/rungs.h"
#include "kernels/cpu/numeric.h"
#include "kernels/cpu/small_product.h"

namespace tessera::kernel_ladder::attention {
namespace {

using cpu::exponential, cpu::Matrix, cpu::SmallProduct;

constexpr std::int64_t kTile = 64;

/// 64 queries of a head on their way through the keys. A query is a lane: a column of each array.
struct Queries {
  alignas(64) float columns[kMostChannels * kTile];  // [D][lane]: scale times q
  alignas(64) float output[kMostChannels * kTile];   // [D][lane]: the sum of weight v so far
  alignas(64) float scores[kTile * kTile];           // [key][lane]: of the tile
  alignas(64) float maximum[kTile], sum[kTile], correction[kTile];
};

/// Hides keys after their query. Then scores become weights, relative to the maximum so far.
void exponentiate(Queries& s, std::int64_t first_query, std::int64_t first_key, std::int64_t keys) {
  std::copy_n(s.maximum, kTile, s.correction);
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const score = s.scores + j * kTile;
    const std::int64_t hidden = std::clamp<std::int64_t>(first_key + j - first_query, 0, kTile);
    std::fill_n(score, hidden, -std::numeric_limits<float>::infinity());
    for (std::int64_t i = 0; i < kTile; ++i) s.maximum[i] = std::max(s.maximum[i], score[i]);
  }
  for (std::int64_t i = 0; i < kTile; ++i) {
    s.correction[i] = exponential(s.correction[i] - s.maximum[i]);
    s.sum[i] *= s.correction[i];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const score = s.scores + j * kTile;
    for (std::int64_t i = 0; i < kTile; ++i) {
      score[i] = exponential(score[i] - s.maximum[i]);
      s.sum[i] += score[i];
    }
  }
}

void visit(const Attention& p, Queries& s, const SmallProduct<float>& multiply, const float* k,
           const float* v, std::int64_t first_query, std::int64_t first_key) {
  const std::int64_t keys = std::min(kTile, p.T - first_key);
  multiply({s.scores, kTile}, {const_cast<float*>(k + first_key * p.D), p.D}, {s.columns, kTile},
           {.rows = keys, .columns = kTile, .depth = p.D}, Accumulate::no);
  exponentiate(s, first_query, first_key, keys);
  for (std::int64_t d = 0; d < p.D; ++d) {
    for (std::int64_t i = 0; i < kTile; ++i) s.output[d * kTile + i] *= s.correction[i];
  }
  const Matrix<float> values{const_cast<float*>(v + first_key * p.D), p.D};
  multiply({s.output, kTile}, values.transposed(), {s.scores, kTile},
           {.rows = p.D, .columns = kTile, .depth = keys}, Accumulate::yes);
}

void attend(const Attention& p, std::int64_t head, std::int64_t first_query) {
  const SmallProduct<float> multiply(cpu::best_isa());
  const std::int64_t queries = std::min(kTile, p.T - first_query);
  Queries s{};
  std::fill_n(s.maximum, kTile, -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < queries; ++i) {
    const float* const q = p.q + head + (first_query + i) * p.D;
    for (std::int64_t d = 0; d < p.D; ++d) s.columns[d * kTile + i] = p.scale * q[d];
  }
  const std::int64_t visible = first_query + queries;
  for (std::int64_t first_key = 0; first_key < visible; first_key += kTile) {
    visit(p, s, multiply, p.k + head, p.v + head, first_query, first_key);
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    float* const o = p.o + head + (first_query + i) * p.D;
    for (std::int64_t d = 0; d < p.D; ++d) o[d] = s.output[d * kTile + i] / s.sum[i];
  }
}

}  // namespace

void avx512(const Attention& p) {
  for (std::int64_t h = 0; h < p.H; ++h) {
    for (std::int64_t i = 0; i < p.T; i += kTile) attend(p, h * p.T * p.D, i);
  }
}

}  // namespace tessera::kernel_ladder::attention
