#include "tools/measure/workload.h"

#include <vector>

#include "runtime/random.h"
#include "tools/config/find.h"
#include "tools/config/parse.h"

namespace tessera {
namespace {

constexpr const char* kTiny = R"(
model: {layers: 3, heads: 2, width: 24, context: 19, vocab_size: 257}
data: {batch_size: 8, sequence_length: 19}
optimizer: {clip_norm: 0.1}
)";

constexpr const char* kPreset = R"(
data: {batch_size: 4, sequence_length: 256}
optimizer: {clip_norm: 0.1}
)";

}  // namespace

Config workload(const std::string& model, std::span<const std::string> overrides) {
  if (model == "tiny") return parse_config(kTiny, model, overrides);
  return find_config(model, overrides, kPreset);
}

TrainingSession::BatchSource random_tokens(const DataConfig& data, std::int64_t vocab_size) {
  const std::int64_t length = data.sequence_length;
  const auto load = [=](std::int64_t step, std::int64_t first_row, std::int64_t rows) {
    const auto tokens = [&](const char* name) {
      const RandomStream random(1, name, static_cast<std::uint64_t>(step));
      std::vector<std::int32_t> ids;
      for (std::int64_t i = first_row * length; i < (first_row + rows) * length; ++i) {
        ids.push_back(static_cast<std::int32_t>(
            random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocab_size))));
      }
      return Tensor::from(ids, {rows, length});
    };
    return Batch{tokens("inputs"), tokens("targets")};
  };
  return {load, [=](std::int64_t, std::int64_t, std::int64_t rows) { return rows * length; }};
}

}  // namespace tessera
