#include "tools/bench/libraries.h"

#include <cblas.h>
#include <fmt/ranges.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "runtime/check.h"
#include "runtime/text.h"

namespace tessera {
namespace {

using cpu::Isa;

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

const char* environment(const char* name) {
  return std::getenv(name);
}

/// The settings of OpenBLAS in the environment, sorted.
std::vector<std::string> openblas_settings() {
  std::vector<std::string> settings;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with("OPENBLAS_")) settings.emplace_back(*variable);
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

void restart_with(const std::map<std::string, std::string>& settings, char** arguments) {
  bool changed = false;
  for (const auto& [name, value] : settings) {
    const char* const now = environment(name.c_str());
    changed = changed || now == nullptr || value != now;
    check(::setenv(name.c_str(), value.c_str(), 1) == 0, "cannot set {} to {}", name, value);
  }
  if (!changed) return;
  ::execv("/proc/self/exe", arguments);
  fail("cannot start the program again with other settings of OpenBLAS and oneDNN: {}",
       std::strerror(errno));
}

}  // namespace

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

void set_up_libraries(char** arguments, const LibrarySettings& settings) {
  std::map<std::string, std::string> variables;
  if (settings.threads > 0) variables["OMP_NUM_THREADS"] = std::to_string(settings.threads);
  if (!settings.isa.empty()) {
    const Isa isa = enum_from_name<Isa>(settings.isa);
    const std::string_view core = openblas_core_for(isa);
    if (!core.empty()) variables["OPENBLAS_CORETYPE"] = core;
    if (isa == Isa::avx2) variables["ONEDNN_MAX_CPU_ISA"] = "AVX2";
    if (isa == Isa::avx512) variables["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE";
    if (isa == Isa::avx512_bf16) variables["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16";
  } else if (environment("OPENBLAS_CORETYPE") == nullptr) {
    const std::string_view better = better_openblas_core(openblas_get_corename(), cpu::best_isa());
    if (!better.empty()) variables["OPENBLAS_CORETYPE"] = better;
  }
  restart_with(variables, arguments);
}

std::string describe_openblas(Isa isa) {
  const std::string_view core = openblas_get_corename();
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  const std::vector<std::string_view> words = split(openblas_get_config(), ' ');
  std::string text = fmt::format("{} {} with {} kernels", words.at(0), words.at(1), core);
  if (const auto settings = openblas_settings(); !settings.empty()) {
    text += fmt::format(" ({})", fmt::join(settings, ", "));
  }
  if (const std::string_view better = better_openblas_core(core, isa); !better.empty()) {
    text += fmt::format("; this CPU could run those of {}, so the comparison flatters us", better);
  }
  return text;
}

}  // namespace tessera
