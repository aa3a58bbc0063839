// runtime.overlap_update: the update under the next forward pass has the bits of one before it, for every
// strategy, and each unit waits for its own part alone.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/update_stream.h"
#include "sharding/checkpoint/folder.h"
#include "tests/support/device.h"
#include "tests/support/waiting.h"
#include "tests/tools/sessions.h"
#include "tests/tools/six_layers.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/figures.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

Config tiny(const std::string& preset = "gpt2-mini") {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.layers = 3;
  config.model.vocab_size = 19;
  config.data = {.batch_size = 4, .sequence_length = 8};
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.clip_norm = 0.1;
  config.sharding.live_gathers = 2;
  return config;
}

/// Empty, or what differs if the update runs under the next forward pass, with random delays.
std::string difference(Config config, int ranks, std::uint64_t delay_seed) {
  const auto trained = [&](bool overlap, std::optional<std::uint64_t> seed, Findings& findings) {
    config.runtime.overlap_update = overlap;
    return test::train_session(config, ranks,
                               {.count = 3,
                                .device = test::device(),
                                .findings = &findings,
                                .evaluated_rows = config.data.batch_size,
                                .delay_seed = seed});
  };
  Findings findings;
  const TrainedSession expected = trained(false, {}, findings);
  const TrainedSession found = trained(true, delay_seed, findings);
  std::string text;
  for (const std::string& wrong : findings.wrong()) text += " " + wrong;
  if (found.losses != expected.losses) text += " losses";
  if (found.norms != expected.norms) text += " norms";
  if (found.weights != expected.weights) text += " weights";
  return text;
}

/// Holds the update of each unit until the forward pass has come to the unit before it.
class PartGate {
 public:
  void pass(int unit) {
    std::unique_lock lock(mutex_);
    in_vain_ |= !changed_.wait_for(lock, test::kSafetyLimit, [&] { return begun_ >= unit; });
    if (in_vain_) begun_ = unit;
  }
  /// Forward passes have begun since the update before.
  void set(int begun) {
    const std::lock_guard lock(mutex_);
    begun_ = begun;
    changed_.notify_all();
  }
  bool waited_in_vain() {
    const std::lock_guard lock(mutex_);
    return in_vain_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0;
  bool in_vain_ = false;
};

/// Tells the gate of every unit whose forward pass has begun, with its parameters there.
class Watch final : public UnitHooks {
 public:
  Watch(TrainingSession& session, PartGate& gate) : session_(session), gate_(gate) { attach(this); }
  ~Watch() override { attach(&session_.strategy()); }

  void before_forward(Unit& unit) override {
    session_.strategy().before_forward(unit);
    gate_.set(++begun_);
  }
  void after_forward(Unit& unit) override { session_.strategy().after_forward(unit); }
  void before_backward(Unit& unit) override {
    gate_.set(begun_ = 0);
    session_.strategy().before_backward(unit);
  }
  void after_backward(Unit& unit) override { session_.strategy().after_backward(unit); }

 private:
  void attach(UnitHooks* hooks) {
    for (const auto& unit : session_.model().units()) unit->attach(hooks);
  }

  TrainingSession& session_;
  PartGate& gate_;
  int begun_ = 0;
};

std::map<std::string, std::vector<float>> state_of(TrainingSession& session) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, tensor] : session.optimizer().state()) {
    values[name] = tensor.to_vector<float>();
  }
  return values;
}

}  // namespace

TEST_CASE("overlap: every strategy has the bits and the bytes of an update before the pass") {
  std::uint64_t seed = 0;
  for (const std::string& strategy : strategy_variants()) {
    for (const std::int64_t micro_batches : {1, 2}) {
      Config config = variant_of(tiny(), strategy);
      config.data.accumulation_steps = micro_batches;
      const bool bf16 = seed % 2 == 1;
      if (bf16) config.runtime.compute_dtype = DType::bf16;
      INFO(strategy << ", " << micro_batches << (bf16 ? ", bf16" : ", f32"));
      CHECK(difference(config, 2, seed++) == "");
    }
  }
  CHECK(difference(tiny(), 1, seed) == "");
}

TEST_CASE("overlap: groups, averages, frozen units, masters in bf16 and fp8 keep their bits") {
  Config groups = tiny("llama3-mini");
  groups.optimizer.groups = {{.match = "vectors", .keys = {{"name", "sgd"}, {"momentum", "0.9"}}},
                             {.match = "tables", .keys = {{"weight_decay", "0.2"}}}};
  groups.train.ema = 0.75;
  Config frozen = tiny();
  frozen.model.frozen = "transformer.h.2,transformer.ln_f";
  frozen.train.ema = 0.5;
  Config bf16 = tiny();
  bf16.runtime.compute_dtype = DType::bf16;
  bf16.optimizer.master_dtype = bf16.optimizer.state_dtype = DType::bf16;
  Config fp8 = tiny("llama3-mini");
  fp8.runtime.compute_dtype = ComputeDtype::eight_bits();
  for (const std::string strategy : {"ddp", "zero1", "fsdp"}) {
    int number = 0;
    for (const Config& config : {groups, frozen, bf16, fp8}) {
      INFO(strategy << ", case " << number);
      CHECK(difference(variant_of(config, strategy), 2, 100 + number++) == "");
    }
  }
}

TEST_CASE("overlap: a unit's forward pass waits for its own update alone", "[cpu]") {
  for (const std::string strategy : {"single", "ddp", "zero1", "fsdp"}) {
    Config config = strategy == "single" ? tiny() : variant_of(tiny(), strategy);
    config.runtime.overlap_update = true;
    test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
      PartGate gate;
      const Watch watch(session, gate);
      const int units = static_cast<int>(session.model().units().size());
      int update = 0;
      context().side_stream(kUpdateStream).set_delay([&gate, &update, units] {
        gate.pass(update++ % units);
      });
      for (int step = 1; step <= 3; ++step) session.step(step, source);
      gate.set(units);
      session.strategy().shards();
      INFO(strategy);
      CHECK(update == 3 * units);
      CHECK_FALSE(gate.waited_in_vain());
    });
  }
}

TEST_CASE("overlap: steps that f16 skips leave weights and state, and do not count") {
  Config config = tiny();
  config.runtime.compute_dtype = DType::f16;
  config.optimizer.clip_norm = 0.0;
  config.runtime.overlap_update = true;
  test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
    session.strategy().write_masters([&] {  // gradients overflow at the first loss scales
      for (const Shard& shard : session.strategy().shards()) {
        if (shard.parameter.name() != "transformer.ln_f.weight") continue;
        shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 60.0));
      }
    });
    int skipped = 0;
    for (int step = 1; step <= 8; ++step) {
      const auto weights = test::weights_of(session);
      const auto state = state_of(session);
      const bool finite = session.step(step, source).finite;
      CHECK((test::weights_of(session) == weights) == !finite);
      CHECK((state_of(session) == state) == !finite);
      skipped += finite ? 0 : 1;
    }
    CHECK(skipped >= 1);
    CHECK(skipped < 8);
    CHECK(session.optimizer().steps() == 8 - skipped);
  });
}

TEST_CASE("overlap: checkpoints, the model and a resumed run have the bits of a run without",
          "[cpu]") {
  const test::TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 6;
  config.train.checkpoint_every = 3;
  config.train.keep_last = 9;
  train(config);
  const std::string model = test::model_bytes(config.train.dir);
  config.runtime.overlap_update = true;
  config.train.dir = folder / "overlap";
  train(config);
  CHECK(test::model_bytes(config.train.dir) == model);
  std::filesystem::remove_all(config.train.dir / "model");
  for (const CheckpointFolder& checkpoint : checkpoints_in(config.train.dir)) {
    if (checkpoint.step > 3) std::filesystem::remove_all(checkpoint.path);
  }
  train(config);
  CHECK(test::model_bytes(config.train.dir) == model);
}

TEST_CASE("overlap: masters and state are those of the whole update when they are asked for",
          "[cpu]") {
  Config config = tiny();
  config.runtime.overlap_update = true;
  test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
    context().side_stream(kUpdateStream).set_delay([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    const auto masters_of = [&] {
      std::vector<std::vector<float>> values;
      for (const Shard& shard : session.strategy().shards()) {
        values.push_back(shard.data.to_vector<float>());
      }
      return values;
    };
    const auto check_first = [&](const auto& read) {
      session.step(1, source);
      const auto early = read();
      context().side_stream(kUpdateStream).synchronize();
      CHECK((early == read()));
    };
    check_first(masters_of);
    check_first([&] { return state_of(session); });
    check_first([&] { return test::weights_of(session); });
  });
}

TEST_CASE("overlap: an update goes on when its session ends first", "[cpu]") {
  Config config = tiny();
  config.runtime.overlap_update = true;
  int updated = 0;
  std::size_t units = 0;
  test::with_session(config, 1, [&](TrainingSession& session, const auto& source, auto&) {
    units = session.model().units().size();
    context().side_stream(kUpdateStream).set_delay([&updated] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++updated;
    });
    session.step(1, source);
  });
  CHECK(updated == static_cast<int>(units));
}

// An embedding computes nothing, so its update and that of the first layer are exposed.
TEST_CASE("overlap: a plan hides the update of a layer behind the layers before it", "[cpu]") {
  constexpr double kRate = 1e9,
                   kBytes = 28.0;  // of an element in f32: p, m and v twice, the gradient
  Config config = test::six_layers();
  config.sharding.strategy = StrategyKind::single;
  PlanOptions options{.ranks = 1, .machine = test::gpus_with_links(1e9)};
  options.machine->compute.front().memory = kRate;
  const Timeline without = plan_figures(config, options).figures.time->timeline;
  config.runtime.overlap_update = true;
  const PlanFigures figures = plan_figures(config, options);
  const Timeline& with = figures.figures.time->timeline;
  std::vector<double> seconds;
  for (const auto& unit : figures.model->units()) {
    seconds.push_back(0.0);
    for (const Parameter& parameter : unit->parameters()) {
      seconds.back() += kBytes * static_cast<double>(parameter.numel()) / kRate;
    }
  }
  const double hidden = std::accumulate(seconds.begin() + 2, seconds.end(), 0.0);
  CHECK(without.seconds - with.seconds == Approx(hidden));
  CHECK(with.exposed_by_axis.at(kUpdateStream) == Approx(seconds[0] + seconds[1]));
}

TEST_CASE("overlap: what an update in parts cannot do is refused", "[cpu]") {
  const auto error = [](const auto& change) {
    Config config = tiny();
    config.runtime.overlap_update = true;
    change(config);
    return test::error_of([&] { resolve(config); });
  };
  CHECK_THAT(error([](Config& config) { config.runtime.graph = true; }),
             Contains("runtime.overlap_update") && Contains("runtime.graph=false"));
  CHECK_THAT(error([](Config& config) { config.sharding.offload = Offload::optimizer; }),
             Contains("sharding.offload=none"));
  CHECK_THAT(error([](Config& config) { config.optimizer.name = OptimizerKind::muon; }),
             Contains("muon exchanges the matrices of all units together"));
  CHECK(error([](Config&) {}) == "no error");
}

}  // namespace tessera
