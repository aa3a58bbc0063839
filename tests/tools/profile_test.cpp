// train.profile: a trace of all ranks and snapshots of memory. memory_viewer_check.py uses PyTorch's viewer.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "runtime/context.h"
#include "runtime/open_spans.h"
#include "tests/support/rank.h"
#include "tests/tools/tiny_run.h"
#include "tools/pickle/writer.h"
#include "tools/report/report.h"
#include "tools/train/memory_profile.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using test::TemporaryDirectory;

Config profiled_run(const TemporaryDirectory& folder, StepRange steps) {
  Config config = test::tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  config.train.steps = 6;
  config.train.profile = steps;
  return config;
}

json trace_of(const Config& config) {
  return json::parse(read_text_file(config.train.dir / "profile" / "trace.json"))["traceEvents"];
}

BlockEvent block(bool allocates, std::uint64_t address, std::int64_t bytes, Category category,
                 int ms, std::vector<std::string> spans = {}) {
  return {.allocates = allocates,
          .address = address,
          .bytes = bytes,
          .category = category,
          .time = std::chrono::steady_clock::time_point(std::chrono::milliseconds(ms)),
          .spans = std::move(spans)};
}

}  // namespace

TEST_CASE("a profile has the chosen steps of every rank, a track per stream") {
  const TemporaryDirectory folder;
  const Config config = profiled_run(folder, {2, 3});
  train(config);
  std::map<std::string, std::set<int>> ranks_of;
  std::set<std::string> tracks;
  std::map<std::string, double> begin, end;
  for (const json& event : trace_of(config)) {
    const std::string name = event["name"];
    ranks_of[name].insert(event["pid"].get<int>());
    if (name == "thread_name") tracks.insert(event["args"]["name"]);
    if (event["pid"] != 0 || event["ph"] != "X") continue;
    begin.try_emplace(name, event["ts"]);
    end[name] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  CHECK(ranks_of["step 2"] == std::set<int>{0, 1});
  CHECK(ranks_of["step 3"] == std::set<int>{0, 1});
  CHECK(ranks_of["forward h.1"] == std::set<int>{0, 1});
  CHECK_FALSE(ranks_of.contains("step 1"));
  CHECK_FALSE(ranks_of.contains("step 4"));
  CHECK(tracks.size() >= 2);
  CHECK(begin["step 2"] <= begin["forward"]);
  CHECK(end["optimizer"] <= end["step 3"]);
  // The memory is that of the same steps: its last event comes before the end of step 3.
  const json memory = json::parse(read_text_file(config.train.dir / "profile" / "memory.json"));
  CHECK(memory["ms"].back().get<double>() <= 1e-3 * (end["step 3"] - begin["step 2"]) + 0.1);
}

TEST_CASE(
    "a profile changes no bit of a run, and is written where a run ends before its last step") {
  const TemporaryDirectory folder;
  Config config = profiled_run(folder, {5, 90});
  train(config);
  const std::string profiled = test::model_bytes(config.train.dir);
  CHECK(trace_of(config).size() > 10);
  const json memory = json::parse(read_text_file(config.train.dir / "profile" / "memory.json"));
  CHECK(memory["ms"].size() > 10);
  const ordered_json report = report_data(config.train.dir);
  CHECK(report["memory"]["ms"].size() == memory["ms"].size());
  config.train.profile = {};
  config.train.dir = folder / "without";
  train(config);
  CHECK(test::model_bytes(config.train.dir) == profiled);
  CHECK_FALSE(fs::exists(config.train.dir / "profile"));
  CHECK_FALSE(report_data(config.train.dir).contains("memory"));
}

TEST_CASE("the memory of a profile ends with the bytes of the account") {
  const test::Rank rank;
  const CategoryScope scope(Category::activations);
  const Allocator& allocator = context().allocator();
  const Tensor before = Tensor::zeros({100}, DType::f32);
  std::optional<Tensor> released = Tensor::zeros({50}, DType::f32);
  MemoryProfile profile = {.before = allocator.account()};
  record_blocks(allocator, true);
  std::optional<Tensor> kept;
  {
    const Span outer("forward");
    const Span inner("forward h.0");
    kept = Tensor::zeros({30}, DType::f32);
    const Tensor brief = Tensor::zeros({1000}, DType::f32);
  }
  released.reset();
  profile.events = take_blocks(allocator);
  const Tensor later = Tensor::zeros({7}, DType::f32);
  REQUIRE(profile.events.size() == 4);
  CHECK(profile.events[0].spans == std::vector<std::string>{"forward", "forward h.0"});
  CHECK(open_spans().empty());
  CHECK(take_blocks(allocator).empty());
  const json over_time = memory_over_time(profile);
  const json& activations = over_time["activations"];
  CHECK(activations[0].get<std::int64_t>() == 600 + 120);
  CHECK(activations[1].get<std::int64_t>() == 600 + 120 + 4000);
  CHECK(activations.back() == 520);

  const json snapshot = memory_snapshot(profile);
  const json& trace = snapshot["device_traces"][0];
  REQUIRE(trace.size() == 10);
  CHECK(trace[0]["action"] == "segment_alloc");
  CHECK(trace[1]["action"] == "alloc");
  CHECK(trace[0]["frames"][0]["name"] == "forward h.0");
  CHECK(trace[0]["frames"][1]["name"] == "forward");
  CHECK(trace[0]["frames"][0]["filename"] == "activations");
  CHECK(trace[5]["action"] == "free_completed");
  CHECK(trace[5]["addr"] == trace[3]["addr"]);
  std::int64_t live = 0;
  for (const json& segment : snapshot["segments"])
    live += segment["active_size"].get<std::int64_t>();
  CHECK(live == 520);
}

TEST_CASE("bytes over time keep the largest of neighbouring moments") {
  MemoryProfile profile;
  for (int i = 0; i < 1000; ++i) {
    profile.events.push_back(block(true, 1, i == 500 ? 99 : 10, Category::gradients, 2 * i));
    profile.events.push_back(block(false, 1, i == 500 ? 99 : 10, Category::gradients, 2 * i + 1));
  }
  const json over_time = memory_over_time(profile, 100);
  CHECK(over_time["ms"].size() == 100);
  CHECK(over_time["optimizer"].size() == 100);
  CHECK(over_time["gradients"][50] == 99);
  CHECK(over_time["gradients"][51] == 10);
  CHECK(over_time["ms"][50] == 1000.0);
  CHECK(memory_over_time({})["ms"].empty());
}

TEST_CASE("a pickle is read by Python as the same value") {
  const TemporaryDirectory folder;
  const ordered_json value = {
      {"text", "é \"quoted\""},
      {"numbers", {0, -1, 255, -9223372036854775807ll, 18446744073709551615ull}},
      {"real", 0.1},
      {"yes", true},
      {"no", false},
      {"none", nullptr},
      {"empty", ordered_json::object()},
      {"list", ordered_json::array()}};
  write_file_atomically(folder / "v.pickle", to_pickle(value));
  write_file_atomically(folder / "v.json", value.dump());
  const std::string program =
      "import json, pickle, sys; a = pickle.load(open(sys.argv[1], 'rb')); "
      "sys.exit(a != json.load(open(sys.argv[2])) or list(a)[0] != 'text')";
  const std::string command = "python3 -c \"" + program + "\" " + (folder / "v.pickle").string() +
                              " " + (folder / "v.json").string();
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace tessera
