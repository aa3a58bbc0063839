#include "examples/kernel_ladder/memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "runtime/threads.h"

namespace tessera::kernel_ladder {

std::string memory_name(const std::string& access, int threads) {
  return fmt::format("{}, {} thread{}", access, threads, threads == 1 ? "" : "s");
}

Line copy_line(const Tensor& to, const Tensor& from, int threads) {
  const auto copy = [=] {
    const auto bytes = static_cast<std::int64_t>(from.bytes());
    parallel_for(bytes, ceil_div(bytes, threads), [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.raw() + begin, from.raw() + begin, static_cast<std::size_t>(end - begin));
    });
  };
  return {.name = memory_name("copy", threads), .run = copy};
}

Line read_line(const Tensor& from, int threads) {
  const auto read = [=] {
    const auto count = static_cast<std::int64_t>(from.bytes() / sizeof(std::uint32_t));
    parallel_for(count, ceil_div(count, threads), [&](std::int64_t begin, std::int64_t end) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(from.raw());
      std::uint32_t sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = begin; i < end; ++i) sum += words[i];
      asm volatile("" : : "r"(sum));  // the compiler must compute it
    });
  };
  return {.name = memory_name("read", threads), .run = read};
}

}  // namespace tessera::kernel_ladder
