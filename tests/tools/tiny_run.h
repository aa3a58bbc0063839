// A training run of a few seconds at most, and its output.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "runtime/safetensors.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/config.h"
#include "tools/data/prepare.h"

namespace tessera::test {

/// Text that can be learned: the numbers in order. (Below 99, so that a round has an odd number of
/// characters and windows of 24 start everywhere in it.)
inline std::string counting_text() {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i % 99) + " ";
  return text;
}

/// Prepares the text in `folder` and returns the configuration of a run on the CPU that takes a few
/// seconds at most. cuda_train_test.cpp has runs on a GPU.
inline Config tiny_run(const TemporaryDirectory& folder) {
  write_file_atomically(folder / "text.txt", counting_text());
  prepare({.inputs = {folder / "text.txt"},
           .tokenizer = "chars",
           .out = folder / "data",
           .val_fraction = 0.1});
  Config config;
  config.model = {.preset = "gpt2-mini", .layers = 2, .heads = 2, .width = 16, .context = 24};
  config.data = {.train = folder / "data/train.bin",
                 .val = folder / "data/val.bin",
                 .batch_size = 4,
                 .sequence_length = 24};
  config.optimizer.learning_rate = 1e-2;
  config.train.steps = 12;
  config.train.dir = folder / "run";
  config.train.log_every = 1;
  config.train.eval_every = 6;
  config.train.progress = ProgressMode::lines;
  config.runtime.device = Device{};
  config.runtime.threads = 1;  // a second one would mostly wait: the steps are short
  return config;
}

/// Two narrow layers of a preset's family.
inline ModelConfig tiny_model(const std::string& preset, std::int64_t context = 24) {
  ModelConfig model = {.preset = preset, .layers = 2, .heads = 2, .width = 16, .context = context};
  if (preset.starts_with("gpt2")) return model;
  model.head_size = 8;
  if (preset.starts_with("qwen3-moe") || preset.starts_with("llama4")) {
    model.experts = 6;
    model.expert_width = 8;
  }
  if (!preset.starts_with("qwen3-moe")) {
    model.kv_heads = 1;
    model.mlp_width = 24;
  }
  return model;
}

/// From its second step on the run's losses are not finite.
inline void diverge(Config& config) {
  config.optimizer.learning_rate = 1e30;
  config.optimizer.schedule = ScheduleKind::constant;
  config.data.val.clear();
}

/// All lines of metrics.jsonl.
inline std::vector<nlohmann::json> metric_lines_of(const std::filesystem::path& run) {
  std::ifstream file(run / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// Those about steps.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines = metric_lines_of(run);
  std::erase_if(lines, [](const nlohmann::json& line) { return line.contains("event"); });
  return lines;
}

/// Those about events of this name; of every name if it is empty.
inline std::vector<nlohmann::json> events_of(const std::filesystem::path& run,
                                             const std::string& name = {}) {
  std::vector<nlohmann::json> lines = metric_lines_of(run);
  std::erase_if(lines, [&](const nlohmann::json& line) {
    return !line.contains("event") || (!name.empty() && line["event"] != name);
  });
  return lines;
}

/// Each line about a step, in the fields that do not depend on time and memory.
inline std::vector<std::string> results_of(const std::filesystem::path& run) {
  std::vector<std::string> results;
  for (const nlohmann::json& line : metrics_of(run)) {
    std::string text;
    for (const char* key :
         {"step", "loss", "gradient_norm", "val_loss", "val_loss_ema", "learning_rate", "tokens",
          "router_loss", "expert_load", "idle_experts"}) {
      text += line.value(key, nlohmann::json()).dump() + " ";
    }
    results.push_back(text);
  }
  return results;
}

/// The saved model's tensors by name.
inline std::map<std::string, std::vector<float>> saved_weights(const std::filesystem::path& run) {
  const Rank rank;  // reading a tensor needs a stream
  const SafetensorsFile file(run / "model/model.safetensors");
  std::map<std::string, std::vector<float>> weights;
  for (const auto& [name, info] : file.tensors()) {
    weights[name] = file.tensor(name).to_vector<float>();
  }
  return weights;
}

inline std::string model_bytes(const std::filesystem::path& run) {
  const std::filesystem::path adapter = run / "model/adapter_model.safetensors";
  return read_text_file(exists(adapter) ? adapter : run / "model/model.safetensors");
}

}  // namespace tessera::test
