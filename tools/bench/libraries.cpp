#include "tools/bench/libraries.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/matmul/openblas_library.h"
#include "runtime/text.h"

namespace tessera {
namespace {

using cpu::Isa;

/// The settings of OpenBLAS in the environment, sorted.
std::vector<std::string> openblas_settings() {
  std::vector<std::string> settings;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with("OPENBLAS_")) settings.emplace_back(*variable);
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

}  // namespace

void limit_libraries(Isa isa) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
  };
  if (const auto core = cpu::openblas_core_for(isa); !core.empty())
    set("OPENBLAS_CORETYPE", std::string(core));
  if (isa == Isa::avx2) set("ONEDNN_MAX_CPU_ISA", "AVX2");
  if (isa == Isa::avx512) set("ONEDNN_MAX_CPU_ISA", "AVX512_CORE");
  if (isa == Isa::avx512_bf16) set("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16");
}

std::string describe_openblas(Isa isa) {
  const cpu::OpenBlas& blas = cpu::openblas();
  const std::string_view core = blas.get_corename();
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const std::vector<std::string_view> words = split(blas.get_config(), ' ');
  std::string text = fmt::format("{} {} with {} kernels", words.at(0), words.at(1), core);
  if (const auto settings = openblas_settings(); !settings.empty()) {
    text += fmt::format(" ({})", fmt::join(settings, ", "));
  }
  if (const auto better = cpu::better_openblas_core(core, isa); !better.empty()) {
    text += fmt::format("; this CPU could run those of {}, so the comparison flatters us", better);
  }
  return text;
}

}  // namespace tessera
