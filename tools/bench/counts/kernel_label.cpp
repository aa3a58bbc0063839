#include "tools/bench/counts/kernel_label.h"

#include <string_view>

namespace tessera {
namespace {

void remove_all(std::string& text, std::string_view part) {
  for (auto at = text.find(part); at != text.npos; at = text.find(part))
    text.erase(at, part.size());
}

/// "b" of "a::b<c>(d)".
std::string last_name(const std::string& text) {
  const std::string head = text.substr(0, text.find_first_of("<(,> "));
  const auto colons = head.rfind("::");
  return colons == head.npos ? head : head.substr(colons + 2);
}

/// The operation whose folder below kernels/ has the file: "swiglu". "other" elsewhere.
std::string operation_of(const std::string& file) {
  constexpr std::string_view kFolder = "kernels/";
  const auto begin = file.rfind(kFolder);
  if (begin == file.npos) return "other";
  const auto first = begin + kFolder.size();
  return file.substr(first, file.find('/', first) - first);
}

}  // namespace

StepPhase next_phase(StepPhase phase, const std::string& label) {
  // The last norm's is the first kernel of the backward pass.
  if (label.ends_with("_norm/backward_kernel")) return StepPhase::backward;
  // kernels/cuda/multi_tensor.h launches the gradient norm's first kernel.
  if (label.starts_with("gradient_norm/") || label == "cuda/squares_kernel")
    return StepPhase::optimizer;
  return phase;
}

std::string kernel_label(std::string name, const std::string& file) {
  if (file.empty()) return name;
  remove_all(name, "(anonymous namespace)::");
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  const std::string kernel = last_name(name);
  if (kernel.rfind("elementwise", 0) == 0) {
    const auto functor = name.find("tessera::cuda::");
    if (functor != name.npos) return "elementwise/" + last_name(name.substr(functor));
  }
  const bool in_8_bits = name.find("E4m3Pair") != name.npos;
  return operation_of(file) + "/" + kernel + (in_8_bits ? ", 8 bits" : "");
}

}  // namespace tessera
