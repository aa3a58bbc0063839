// What each cut of a layer of Llama 3 70B sends for a micro-batch, by the formulas of docs/beyond.md.
//
// Run build/bin/cuts. A rank is one of eight along the cut.
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string_view>

#include "models/registry.h"

using namespace tessera;

namespace {

constexpr double kRanks = 8, kOthers = (kRanks - 1) / kRanks;
constexpr double kActivation = 2, kGradient = 4;  // bytes: bf16 and f32

void print(std::string_view cut, const std::function<double(double tokens)>& bytes,
           std::string_view hides) {
  fmt::print("| {} |", cut);
  for (const double tokens : {1024, 8192, 131072}) fmt::print(" {:.0f} MB |", 1e-6 * bytes(tokens));
  fmt::print(" {} |\n", hides);
}

}  // namespace

int main() {
  const TransformerShape model = shape_of(model_preset("llama3-70b"));
  const auto width = static_cast<double>(model.width);
  const auto keys = width * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads);
  const double parameters =
      width * (2 * width + 2 * keys + 3 * static_cast<double>(model.mlp_width) + 2);
  fmt::print(
      "| cut | n = 1,024 | n = 8,192 | n = 131,072 | hides behind |\n|---|--:|--:|--:|---|\n");
  print(
      "FSDP, 8 ranks", [&](double) { return kOthers * parameters * (2 * kActivation + kGradient); },
      "computation of the neighbouring layers");
  print(
      "tensor", [&](double tokens) { return 8 * kOthers * tokens * width * kActivation; },
      "nothing, or parts of the same layer");
  print(
      "pipeline, at a border", [&](double tokens) { return 2 * tokens * width * kActivation; },
      "other micro-batches");
  print(
      "context", [&](double tokens) { return 6 * kOthers * tokens * keys * kActivation; },
      "attention to keys that are there already");
}
