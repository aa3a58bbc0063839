// A training run of a few seconds at most, and its output.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/file.h"
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

inline std::string model_bytes(const std::filesystem::path& run) {
  return read_text_file(run / "model/model.safetensors");
}

}  // namespace tessera::test
