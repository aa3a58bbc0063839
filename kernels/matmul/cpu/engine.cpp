#include "kernels/matmul/cpu/engine.h"

#include "runtime/check.h"

namespace tessera::cpu {
namespace {

constexpr decltype(&portable_engine) kEngines[] = {
    portable_engine, avx2_engine, avx512_engine, avx512_bf16_engine, amx_engine, neon_engine,
};

}  // namespace

const Engine& engine_for(Isa isa, DType dtype) {
  if (isa == Isa::software_tiles) {
    if (const Engine* engine = software_tiles_engine(dtype)) return *engine;
    isa = best_isa();
  }
  check(has_isa(isa), "matmul: this CPU has no {}; its best level is {}", enum_name(isa),
        enum_name(best_isa()));
  for (int level = static_cast<int>(isa); level >= 0; --level) {
    const Engine* const engine = kEngines[level](dtype);
    if (engine != nullptr && engine->multiply != nullptr) return *engine;
  }
  fail("matmul: no kernel for {}", name_of(dtype));
}

std::vector<const Engine*> engines_of_all_levels(DType dtype) {
  std::vector<const Engine*> engines;
  for (const auto& of_level : kEngines) {
    if (const Engine* engine = of_level(dtype)) engines.push_back(engine);
  }
  // A compiler without AMX has the same tiles in software.
  if (const Engine* engine = software_tiles_engine(dtype)) engines.push_back(engine);
  return engines;
}

}  // namespace tessera::cpu
