// The rungs of the ladder of attention, in files of their names.
#pragma once

#include <cstdint>

#include "examples/kernel_ladder/rung.h"

namespace tessera::kernel_ladder::attention {

/// o = softmax(scale q k^T) v for each of H heads, where query i sees keys 0 .. i. q, k, v and o are
/// [H, T, D].
struct Attention {
  std::int64_t H, T, D;
  const float* q;
  const float* k;
  const float* v;
  float* o;
  float scale;
  /// [T, T]: the scores of a head.
  float* scores;
};

inline constexpr std::int64_t kMostChannels = 128;  // D, for the rungs with tiles

void stored_scores(const Attention& p);
void online(const Attention& p);
void tiles(const Attention& p);
void causal(const Attention& p);
void avx512(const Attention& p);
void threads(const Attention& p);

inline constexpr Rung<Attention> kRungs[] = {
    {"stored_scores", stored_scores},
    {"online", online},
    {"tiles", tiles},
    {"causal", causal},
    {"avx512", avx512, cpu::Isa::avx512},
    {"threads", threads, cpu::Isa::avx512, true},
};

}  // namespace tessera::kernel_ladder::attention
