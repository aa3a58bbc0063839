// The choice of OpenBLAS's kernels.
#include "kernels/matmul/openblas_library.h"

#include <catch2/catch.hpp>

namespace tessera::cpu {

TEST_CASE("OpenBLAS gets the core of the CPU's level, if its own is lower", "[cpu]") {
  for (const Isa isa : {Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    CAPTURE(enum_name(isa));
    CHECK(better_openblas_core("Prescott", isa) == "SkylakeX");
    CHECK(better_openblas_core("Haswell", isa) == "SkylakeX");
    CHECK(better_openblas_core("Zen", isa) == "SkylakeX");
    CHECK(better_openblas_core("SkylakeX", isa).empty());
    CHECK(better_openblas_core("Cooperlake", isa).empty());
    CHECK(better_openblas_core("SapphireRapids", isa).empty());
    CHECK(better_openblas_core("A CPU of 2040", isa).empty());
  }
  CHECK(better_openblas_core("Prescott", Isa::avx2) == "Haswell");
  CHECK(better_openblas_core("Sandybridge", Isa::avx2) == "Haswell");
  CHECK(better_openblas_core("Haswell", Isa::avx2).empty());
  CHECK(better_openblas_core("Zen", Isa::avx2).empty());
  CHECK(better_openblas_core("SkylakeX", Isa::avx2).empty());
  // A library that was built for one CPU has its name in capitals.
  CHECK(better_openblas_core("HASWELL", Isa::avx2).empty());
  CHECK(better_openblas_core("PRESCOTT", Isa::avx2) == "Haswell");
}

TEST_CASE("OpenBLAS keeps its core where no level is known to be better", "[cpu]") {
  CHECK(better_openblas_core("Prescott", Isa::portable).empty());
  CHECK(better_openblas_core("ARMV8", Isa::neon).empty());
  CHECK(better_openblas_core("Unknown", Isa::neon).empty());
}

}  // namespace tessera::cpu
