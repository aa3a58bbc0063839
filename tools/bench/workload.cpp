#include "tools/bench/workload.h"

#include <algorithm>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/random.h"
#include "tools/config/parse.h"

namespace tessera {
namespace {

Config preset_workload(const std::string& model) {
  Config config;
  config.optimizer.clip_norm = 0.1;
  if (model == "tiny") {
    config.model = {.layers = 3, .heads = 2, .width = 24, .context = 19, .vocab_size = 257};
    config.data = {.batch_size = 8, .sequence_length = 19};
  } else {
    config.model.preset = model;
    config.data = {.batch_size = 4, .sequence_length = 256};
  }
  return config;
}

}  // namespace

Config workload(const std::string& model, std::int64_t batch, std::int64_t sequence) {
  Config config = std::filesystem::exists(model) ? load_config(model) : preset_workload(model);
  config.data.accumulation_steps = 1;
  if (batch > 0) config.data.batch_size = batch;
  if (sequence > 0) config.data.sequence_length = sequence;
  return config;
}

Device device_of_option(const std::string& text) {
  const auto device = parse_device(text);
  check(device.has_value(), "--device {}: it must be auto, cpu, cuda or cuda:1", text);
  return *device;
}

void apply(const RuntimeChoices& choices, Config& config) {
  if (!choices.device.empty()) {
    config.runtime.device = device_of_option(choices.device);
  }
  if (!choices.dtype.empty()) config.runtime.compute_dtype = dtype_from_name(choices.dtype);
  if (!choices.attention.empty()) {
    config.kernels.attention = enum_from_name<AttentionBackend>(choices.attention);
  }
}

TrainingSession::BatchSource random_tokens(const DataConfig& data, std::int64_t vocab_size) {
  const std::int64_t length = data.sequence_length;
  return [=](std::int64_t step, std::int64_t first_row, std::int64_t rows) {
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
}

double median(std::vector<double> values) {
  check(!values.empty(), "nothing has no median");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tessera
