// Prints the memory at the peak of a training step of GPT-2 and Llama, for docs/sharding_cost.md.
//
//   build/bin/step_memory             tables
//   build/bin/step_memory over_time   GPT-2's bytes by category over a step as JSON, for a figure
//
// A dry run (tools/plan/dry_run.h) accounts for every allocation of a step and computes nothing.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/plan/dry_run.h"

using namespace tessera;

namespace {

constexpr std::int64_t kTokens = 1024;

Config config_of(const std::string& preset) {
  Config config;
  config.model.preset = preset;
  config.data = {.batch_size = 1, .sequence_length = kTokens};
  config.runtime.compute_dtype = DType::bf16;
  return config;
}

StepMemory step_of(const Config& config) {
  return dry_run(resolve(config), {.device = Device{}, .threads = 1});
}

void print_categories() {
  const StepMemory gpt2 = step_of(config_of("gpt2"));
  const StepMemory llama = step_of(config_of("llama3.2-1b"));
  fmt::print("| MiB | GPT-2 124M | Llama 3.2 1B |\n|---|--:|--:|\n");
  const auto print = [](std::string_view name, const MemoryAccount::Line& a,
                        const MemoryAccount::Line& b) {
    fmt::print("| {} | {:.2f} | {:.2f} |\n", name, static_cast<double>(a.at_peak) / 0x1p20,
               static_cast<double>(b.at_peak) / 0x1p20);
  };
  for (const Category category : {Category::parameters, Category::gradients, Category::optimizer,
                                  Category::activations, Category::workspace, Category::other}) {
    print(name_of(category), gpt2.account[category], llama.account[category]);
  }
  print("total", gpt2.account.total, llama.account.total);
  fmt::print("| reached in | {} | {} |\n\n", gpt2.moment, llama.moment);
}

/// Bytes that a block keeps for one token: the difference that a further block makes.
std::int64_t bytes_per_token(Config config) {
  config.model.vocab_size = 256;  // so that the peak is in backward, and not in the loss
  config.model.layers = 2;
  const StepMemory two = step_of(config);
  config.model.layers = 3;
  const StepMemory three = step_of(config);
  return (three.account[Category::activations].at_peak -
          two.account[Category::activations].at_peak) /
         kTokens;
}

void print_per_token() {
  fmt::print("| a block keeps, for each token | formula | counted |\n|---|--:|--:|\n");
  const auto print = [](const std::string& preset, std::int64_t formula) {
    fmt::print("| {} | {} | {} |\n", preset, formula, bytes_per_token(config_of(preset)));
  };
  const auto gpt2 = [](std::int64_t C, std::int64_t H) { return 2 * 16 * C + 4 * (H + 4); };
  const auto llama = [](std::int64_t C, std::int64_t Q, std::int64_t K, std::int64_t F,
                        std::int64_t H) {
    return 2 * (4 * C + 2 * Q + 2 * K + 3 * F) + 4 * (H + 2);
  };
  print("gpt2", gpt2(768, 12));
  print("gpt2-xl", gpt2(1600, 25));
  print("llama3.2-1b", llama(2048, 2048, 512, 8192, 32));
  print("llama3-8b", llama(4096, 4096, 1024, 14336, 32));
  print("llama3-70b", llama(8192, 8192, 1024, 28672, 64));
}

/// The live bytes of each category after an allocation or release, and their sum.
struct Moment {
  std::array<std::int64_t, kCategories> bytes = {};
  std::int64_t total = 0;
};

/// A step's moments. Of every few neighbours the one with the largest total stays.
std::vector<Moment> moments_of(const StepMemory& step) {
  constexpr std::size_t kMost = 220;
  Moment now;
  for (int c = 0; c < kCategories; ++c) {
    now.bytes[static_cast<std::size_t>(c)] = step.account[static_cast<Category>(c)].current;
  }
  // The bytes at the step's beginning: those at its end, without its allocations and releases.
  for (const MemoryEvent& event : step.history) {
    now.bytes[static_cast<std::size_t>(event.category)] -= event.bytes;
  }
  const std::size_t together = (step.history.size() + kMost - 1) / kMost;
  std::vector<Moment> moments;
  for (std::size_t i = 0; i < step.history.size(); ++i) {
    const MemoryEvent& event = step.history[i];
    now.bytes[static_cast<std::size_t>(event.category)] += event.bytes;
    now.total = event.total_after;
    if (i % together == 0) {
      moments.push_back(now);
    } else if (now.total > moments.back().total) {
      moments.back() = now;
    }
  }
  return moments;
}

void print_over_time() {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& title, const Config& config, int ranks) {
    const StepMemory step =
        dry_run(resolve(config), {.ranks = ranks, .device = Device{}, .threads = 1});
    nlohmann::ordered_json points = nlohmann::ordered_json::array();
    for (const Moment& moment : moments_of(step)) points.push_back(moment.bytes);
    runs.push_back({{"title", title}, {"peak in", step.moment}, {"points", points}});
  };
  Config config = config_of("gpt2");
  config.data.batch_size = 4;
  add("one rank", config, 1);
  config.sharding.activation_checkpointing = *parse_checkpointing("full");
  add("one rank, activation checkpointing", config, 1);
  config.sharding.activation_checkpointing = {};
  config.sharding.strategy = StrategyKind::fsdp;
  config.data.batch_size = 8 * 4;
  add("fsdp on 8 ranks, rank 0", config, 8);
  fmt::print("{}\n", runs.dump());
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count == 2 && std::string_view(arguments[1]) == "over_time") {
    print_over_time();
    return 0;
  }
  print_categories();
  print_per_token();
}
