#include "kernels/cpu/numeric.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/random_words.h"
#include "kernels/dropout/op.h"

namespace tessera::cpu {
namespace {

template <typename T>
void drop(T* y, const T* x, const std::uint32_t* words, std::int64_t count,
          compute_t<T> probability, compute_t<T> scale) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto kept = load(x[i]) * scale;
    store(y[i], RandomStream::to_uniform(words[i]) < probability ? 0 : kept);
  }
}

}  // namespace

void dropout(Out y, const Tensor& x, float probability, const RandomStream& random,
             std::int64_t first) {
  constexpr std::int64_t kChunk = 64 * kWordsAtOnce;
  visit_floating(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using Real = compute_t<T>;
    const T* inputs = x.data<T>();
    T* outputs = y.data<T>();
    const Real scale = 1 / (1 - static_cast<Real>(probability));
    parallel_for(x.numel(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t words[kWordsAtOnce];
      for (std::int64_t i = begin; i < end; i += kWordsAtOnce) {
        fill_words(words, random, static_cast<std::uint64_t>((first + i) / kBlockWords));
        drop(outputs + i, inputs + i, words, std::min(kWordsAtOnce, end - i), Real{probability},
             scale);
      }
    });
  });
}

}  // namespace tessera::cpu
