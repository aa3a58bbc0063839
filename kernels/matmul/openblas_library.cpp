#include "kernels/matmul/openblas_library.h"

#include <dlfcn.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "runtime/check.h"

namespace tessera::cpu {
namespace {

struct Core {
  std::string_view name;
  Isa isa;
};

/// OpenBLAS's cores of x86-64. SkylakeX is every CPU's with AVX-512: Cooperlake and SapphireRapids
/// have the same kernels for f32.
constexpr Core kCores[] = {
    {"Unknown", Isa::portable},      {"Prescott", Isa::portable},
    {"Core2", Isa::portable},        {"Penryn", Isa::portable},
    {"Dunnington", Isa::portable},   {"Nehalem", Isa::portable},
    {"Atom", Isa::portable},         {"Nano", Isa::portable},
    {"Athlon", Isa::portable},       {"Opteron", Isa::portable},
    {"Opteron_SSE3", Isa::portable}, {"Barcelona", Isa::portable},
    {"Bobcat", Isa::portable},       {"Sandybridge", Isa::portable},
    {"Bulldozer", Isa::portable},    {"Piledriver", Isa::portable},
    {"Steamroller", Isa::portable},  {"Excavator", Isa::portable},
    {"Haswell", Isa::avx2},          {"Zen", Isa::avx2},
    {"SkylakeX", Isa::avx512},
};

#ifndef TESSERA_STATIC
template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

/// It starts no threads of its own, which would map buffers while others count them (blas_buffers.h), until
/// set_num_threads() asks for more.
void* open_library() {
  const bool is_own = std::getenv("OPENBLAS_NUM_THREADS") == nullptr;
  if (is_own) ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (is_own) ::unsetenv("OPENBLAS_NUM_THREADS");
  check(library != nullptr, "cannot load OpenBLAS: {}; install it (Debian: libopenblas0-pthread)",
        ::dlerror());
  return library;
}

OpenBlas load() {
  void* library = open_library();
  OpenBlas blas;
  find(library, "openblas_get_corename", blas.get_corename);
  check(blas.get_corename != nullptr, "libopenblas.so.0 lacks openblas_get_corename");
  const std::string better(better_openblas_core(blas.get_corename(), best_isa()));
  if (!better.empty() && std::getenv("OPENBLAS_CORETYPE") == nullptr) {
    ::setenv("OPENBLAS_CORETYPE", better.c_str(), 1);
    ::dlclose(library);
    library = open_library();
  }
  find(library, "openblas_get_corename", blas.get_corename);
  find(library, "openblas_get_config", blas.get_config);
  find(library, "openblas_set_num_threads", blas.set_num_threads);
  find(library, "cblas_sgemm", blas.sgemm);
  find(library, "cblas_dgemm", blas.dgemm);
  find(library, "blas_memory_alloc", blas.memory_alloc);
  find(library, "blas_memory_free", blas.memory_free);
  check(blas.get_config && blas.set_num_threads && blas.sgemm && blas.dgemm,
        "libopenblas.so.0 lacks functions of OpenBLAS: is it another library?");
  return blas;
}
#else
OpenBlas load() {
  fail(
      "this program is linked statically, and cannot load OpenBLAS; build it from the sources to "
      "compare with it");
}
#endif

}  // namespace

const OpenBlas& openblas() {
  static const OpenBlas library = load();
  return library;
}

std::string_view openblas_core_for(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "Haswell";
    case Isa::avx512:
    case Isa::avx512_bf16:
    case Isa::amx:
      return "SkylakeX";
    default:
      return "";
  }
}

std::string_view better_openblas_core(std::string_view core, Isa isa) {
  const std::string_view best = openblas_core_for(isa);
  const auto isa_of = [](std::string_view name) {
    const auto* const known =
        std::find_if(std::begin(kCores), std::end(kCores), [&](const Core& c) {
          return c.name.size() == name.size() &&
                 ::strncasecmp(c.name.data(), name.data(), name.size()) == 0;
        });
    return known == std::end(kCores) ? Isa::amx : known->isa;
  };
  return !best.empty() && isa_of(core) < isa_of(best) ? best : "";
}

}  // namespace tessera::cpu
