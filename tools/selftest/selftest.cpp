#include "tools/selftest/selftest.h"

#include <bit>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "sharding/checkpoint/folder.h"
#include "tools/config/parse.h"
#include "tools/config/sharding_options.h"
#include "tools/data/prepare.h"
#include "tools/launch/process_tree.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

constexpr int kSteps = 12;
constexpr int kFirstCheckpoint = 4;
/// The cuts of layers, rows and the model.
constexpr std::pair<const char*, std::int64_t ShardingConfig::*> kCuts[] = {
    {"tensor", &ShardingConfig::tensor_parallel},
    {"context", &ShardingConfig::context_parallel},
    {"pipeline", &ShardingConfig::pipeline_parallel}};
constexpr auto kLongestRun = std::chrono::minutes(5);

/// A folder that disappears at the end of the scope.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "tessera-selftest-XXXXXX").string();
    check(::mkdtemp(name.data()) != nullptr, "cannot make a folder in {}",
          fs::temp_directory_path().string());
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  fs::path operator/(std::string_view name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string text_to_learn() {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::to_string(i % 99) + " ";
  return text;
}

class Selftest {
 public:
  Selftest(const SelftestOptions& options, const std::function<void(std::string_view)>& print)
      : options_(options), print_(print) {
    write_file_atomically(folder_ / "text.txt", text_to_learn());
    prepare({.inputs = {folder_ / "text.txt"}, .tokenizer = "chars", .out = folder_ / "data"});
    // Its head has weights of its own, and every cut divides it in two.
    base_.model = {.preset = "llama3-8b",
                   .layers = 2,
                   .heads = 2,
                   .width = 16,
                   .context = 24,
                   .kv_heads = 2,
                   .head_size = 8,
                   .mlp_width = 32};
    base_.data.train = folder_ / "data/train.bin";
    base_.data.batch_size = 4 * options.ranks;
    base_.data.sequence_length = 24;
    base_.optimizer.learning_rate = 1e-2;
    base_.optimizer.schedule = ScheduleKind::constant;
    base_.train.steps = kSteps;
    base_.train.eval_every = 0;
    base_.train.log_every = 1;
    base_.train.checkpoint_every = 0;
    base_.train.elastic = options.ranks;
    base_.sharding.grid = 2;
    base_.runtime.threads = 1;
    if (options.device != "auto") base_.runtime.device = parse_device(options.device);
  }

  int run() {
    report("single", "1 rank", [&] { return train_on_one_rank(); });
    if (wrong_ > 0) return wrong_;
    for (const std::string& variant : strategy_variants()) {
      report(variant, ranks_text(),
             [&] { return train_as(config_of(variant, options_.ranks, variant)); });
    }
    for (const auto& [name, key] : kCuts) {
      report(name, fmt::format("2 of {}, with fsdp", ranks_text()), [&, name = name, key = key] {
        Config config = config_of("fsdp", options_.ranks, name);
        config.sharding.*key = 2;
        return train_as(config);
      });
    }
    report("killed", "fsdp, killed and continued", [&] { return kill_and_continue(); });
    report("resharded", "fsdp, then zero3 with tensor ranks, then 1 rank",
           [&] { return reshard(); });
    return wrong_;
  }

 private:
  std::string ranks_text() const { return fmt::format("{} ranks", options_.ranks); }

  /// Runs a check, which returns its findings, or raises Error about a problem.
  void report(std::string_view name, std::string_view subject,
              const std::function<std::string()>& check) {
    std::string line = fmt::format("{:<10} {}: ", name, subject);
    try {
      line = "ok     " + line + check();
    } catch (const std::exception& error) {
      line = "WRONG  " + line + error.what();
      ++wrong_;
    }
    print_(line);
  }

  Config config_of(const std::string& variant, int ranks, const std::string& name) const {
    Config config = ranks == 1 ? base_ : variant_of(base_, variant);
    config.runtime.ranks = ranks;
    config.train.dir = folder_ / name;
    return config;
  }

  /// A run in a process of its own.
  ProcessTree start(const Config& config, bool has_fault = true) const {
    const fs::path file = folder_ / "run.yaml";
    write_file_atomically(file, to_yaml(config));
    std::vector<std::string> command = {options_.program.string(), "train", file.string()};
    if (has_fault) command.insert(command.end(), options_.fault.begin(), options_.fault.end());
    return ProcessTree(command, (folder_ / "out.txt").string());
  }

  void finish(ProcessTree& run) const {
    const auto end = SteadyClock::now() + kLongestRun;
    for (; !run.poll(); std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      check(SteadyClock::now() < end, "it has not ended after {} minutes", kLongestRun.count());
    }
    if (*run.poll() == 0) return;
    // The last line has the reason.
    std::istringstream lines(read_text_file(folder_ / "out.txt"));
    std::string last;
    for (std::string line; std::getline(lines, line);) last = line;
    fail("status {}: {}", *run.poll(), last);
  }

  std::string train_on_one_rank() {
    const Config config = config_of("", 1, "single");
    ProcessTree run = start(config, /*has_fault=*/false);
    finish(run);
    weights_ = weights_of(config);
    return fmt::format("loss {:.4f} after {} steps", lines_of(config).back()["loss"].get<double>(),
                       kSteps);
  }

  std::string train_as(const Config& config) const {
    ProcessTree run = start(config);
    finish(run);
    check_weights(config);
    return "the same bits; " + check_prediction(config);
  }

  std::string kill_and_continue() const {
    Config config = config_of("fsdp", options_.ranks, "killed");
    config.train.checkpoint_every = kFirstCheckpoint;
    std::int64_t step = 0;
    {
      Config longer = config;  // it cannot end before it is killed
      longer.train.steps = 1'000'000;
      ProcessTree run = start(longer);
      const auto end = SteadyClock::now() + kLongestRun;
      while (checkpoints_in(config.train.dir).empty()) {
        if (run.poll()) finish(run);
        check(SteadyClock::now() < end && !run.poll(), "no checkpoint was written");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      run.signal(SIGKILL);
    }
    // The killed run may have gone further than the first one.
    for (const CheckpointFolder& checkpoint : checkpoints_in(config.train.dir)) {
      if (checkpoint.step > kFirstCheckpoint) fs::remove_all(checkpoint.path);
      if (checkpoint.step == kFirstCheckpoint) step = checkpoint.step;
    }
    check(step == kFirstCheckpoint, "the checkpoint of step {} is gone", kFirstCheckpoint);
    ProcessTree run = start(config);
    finish(run);
    check_resumed(config, step);
    check_weights(config);
    return fmt::format("the same bits from the checkpoint of step {}", step);
  }

  std::string reshard() const {
    Config config = config_of("fsdp", options_.ranks, "resharded");
    config.train.checkpoint_every = kFirstCheckpoint;
    const std::vector<std::pair<std::string, int>> layouts = {
        {"fsdp", options_.ranks}, {"zero3", options_.ranks}, {"", 1}};
    std::int64_t step = 0;
    for (const auto& [variant, ranks] : layouts) {
      Config part = config_of(variant, ranks, "resharded");
      part.train.checkpoint_every = kFirstCheckpoint;
      part.sharding.tensor_parallel = variant == "zero3" ? 2 : 1;
      part.train.steps = step + kFirstCheckpoint;
      ProcessTree run = start(part);
      finish(run);
      if (step > 0) check_resumed(part, step);
      step = part.train.steps;
    }
    check_weights(config);
    return "the same bits";
  }

  static std::string weights_of(const Config& config) {
    return read_text_file(config.train.dir / "model/model.safetensors");
  }
  void check_weights(const Config& config) const {
    check(weights_of(config) == weights_, "the weights differ from those of one rank");
  }

  /// The lines of metrics.jsonl.
  static std::vector<nlohmann::json> all_lines_of(const Config& config) {
    std::istringstream text(read_text_file(config.train.dir / "metrics.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line));
    return lines;
  }
  static std::vector<nlohmann::json> lines_of(const Config& config) {
    std::vector<nlohmann::json> lines = all_lines_of(config);
    std::erase_if(lines, [](const nlohmann::json& line) { return line.contains("event"); });
    return lines;
  }

  static void check_resumed(const Config& config, std::int64_t step) {
    for (const nlohmann::json& line : all_lines_of(config)) {
      if (line.value("event", "") == "resume" && line["step"] == step) return;
    }
    fail("it began again in place of continuing after step {}", step);
  }

  /// Memory by category and bytes sent of every step against the prediction.
  static std::string check_prediction(const Config& config) {
    const nlohmann::json predicted = all_lines_of(config).front().at("predicted");
    const auto sent = predicted.at("bytes_sent").get<double>();
    std::int64_t bytes = 0;
    for (const char* category : {"parameters", "gradients", "optimizer", "communication"}) {
      const auto expected = predicted.at(category).get<std::int64_t>();
      std::int64_t peak = 0;
      for (const nlohmann::json& line : lines_of(config)) {
        peak = std::max(peak, line["peak_bytes"][category].get<std::int64_t>());
      }
      check(peak == expected, "the peak of {} is {} bytes, and {} are predicted", category, peak,
            expected);
      bytes += peak;
    }
    for (const nlohmann::json& line : lines_of(config)) {
      check(line["bytes_sent"].get<double>() == sent, "step {} sent {} bytes, and {} are predicted",
            line["step"].get<int>(), line["bytes_sent"].get<double>(), sent);
    }
    return fmt::format("{} bytes sent per step and {} of memory, as predicted", sent, bytes);
  }

  const SelftestOptions& options_;
  const std::function<void(std::string_view)>& print_;
  const WorkFolder folder_;
  Config base_;
  std::string weights_;
  int wrong_ = 0;
};

}  // namespace

int selftest(const SelftestOptions& options, const std::function<void(std::string_view)>& print) {
  check(options.ranks >= 2 && std::has_single_bit(static_cast<unsigned>(options.ranks)),
        "--ranks is {}; expected 2, 4, 8, ...: sums have the same bits at powers of two",
        options.ranks);
  return Selftest(options, print).run();
}

}  // namespace tessera
