#include "tools/measure/peak.h"

#include <algorithm>
#include <cstdint>

#include "runtime/profiler.h"

namespace tessera {

double clock_rate() {
  constexpr std::int64_t kSteps = 20'000'000;
  double fastest = 0.0;  // other work on the core can only slow a run down
  for (int run = 0; run < 10; ++run) {
    const TimePoint begin = TimePoint::now();
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < kSteps; ++i) {
      asm volatile("" : "+r"(sum));  // hides the sum from the compiler
      sum += 1;
    }
    const double seconds = 1e-3 * milliseconds_between(begin, TimePoint::now());
    fastest = std::max(fastest, static_cast<double>(kSteps) / seconds);
  }
  return fastest;
}

double operations_per_cycle(cpu::Isa isa, DType dtype) {
  const bool bf16 = dtype == DType::bf16;
  switch (isa) {
    case cpu::Isa::avx2:
      return 2 * 8 * 2;
    case cpu::Isa::avx512:
      return 2 * 16 * 2;
    case cpu::Isa::avx512_bf16:
      return bf16 ? 2 * 32 * 2 : 2 * 16 * 2;
    case cpu::Isa::amx:
      return bf16 ? 16 * 16 * 32 * 2 / 16 : 2 * 16 * 2;  // a product of tiles takes 16 cycles
    default:
      return 0.0;
  }
}

}  // namespace tessera
