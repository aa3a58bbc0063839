#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout/op.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kWords = 4;          // random words per block
constexpr std::int64_t kBlocksAtOnce = 64;  // blocks whose words are computed together, in L1
constexpr std::int64_t kElementsAtOnce = kWords * kBlocksAtOnce;

// words[i] = random.bits(4 * first_block + i) for i < kElementsAtOnce.
void fill_words(std::uint32_t* __restrict__ words, const RandomStream& random,
                std::int64_t first_block) {
  for (std::int64_t block = 0; block < kBlocksAtOnce; ++block) {
    const PhiloxCounter four = random.block(static_cast<std::uint64_t>(first_block + block));
    for (std::int64_t w = 0; w < kWords; ++w) words[block * kWords + w] = four[w];
  }
}

template <typename T>
void drop(T* y, const T* x, const std::uint32_t* words, std::int64_t count,
          compute_t<T> probability, compute_t<T> scale) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto kept = load(x[i]) * scale;
    store(y[i], RandomStream::to_uniform(words[i]) < probability ? 0 : kept);
  }
}

}  // namespace

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random) {
  constexpr std::int64_t kChunk = 64 * kElementsAtOnce;
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    const T* inputs = x.data<T>();
    T* outputs = y.data<T>();
    const Real scale = 1 / (1 - static_cast<Real>(probability));
    parallel_for(x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t words[kElementsAtOnce];
      for (std::int64_t i = begin; i < end; i += kElementsAtOnce) {
        fill_words(words, random, i / kWords);
        drop(outputs + i, inputs + i, words, std::min(kElementsAtOnce, end - i), Real{probability},
             scale);
      }
    });
  });
}

}  // namespace tessera::cpu
