// A session names the operation, unit and rank of a planted value that is not finite, and changes nothing.
#include "tools/watch/nonfinite.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>

#include "kernels/observer.h"
#include "tests/support/device.h"
#include "tests/support/error_of.h"
#include "tests/tools/planted.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using PlantedPass = test::Planted::Pass;
using test::TemporaryDirectory;

Config tiny(const std::string& preset, std::int64_t layers) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.layers = layers;
  config.model.vocab_size = 19;
  config.data = {.batch_size = 4, .sequence_length = 8};
  config.train.on_nonfinite = OnNonfinite::explain;
  return config;
}

/// Writes `value` to the first element of the unit's first matrix.
void spoil(Unit& unit, float value) {
  for (const Parameter& parameter : unit.parameters()) {
    if (parameter.shape().rank() < 2) continue;
    const Tensor weight = parameter.data().reshape({parameter.data().numel()});
    weight.slice(0, 1).copy_from(Tensor::full({1}, DType::f32, value));
    return;
  }
}

/// The explanation of step 2, in which `unit` of rank 1 has a matrix with `value`.
std::string explanation(const Config& config, int ranks, const std::string& unit, PlantedPass pass,
                        float value) {
  std::vector<std::string> explanations(static_cast<std::size_t>(ranks));
  test::with_session(
      config, ranks,
      [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
        session.step(1, source);
        std::optional<test::Planted> planted;
        if (world.rank() == 1) {
          planted.emplace(session, unit, pass, [&](Unit& here) { spoil(here, value); });
        }
        const StepResult result = session.step(2, source);
        std::string text = "the step is finite";
        if (result.diverged) text = explain_nonfinite(session, world, 2, source);
        explanations[static_cast<std::size_t>(world.rank())] = text;
      },
      test::device());
  for (const std::string& text : explanations) CHECK(text == explanations.front());
  return explanations.front();
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Sees every operation and changes nothing.
class Counter final : public OperationObserver {
 public:
  void before(std::string_view, std::span<const Tensor> arguments) override {
    tensors += arguments.size();
  }
  void after(std::string_view, std::span<const Tensor>) override { ++operations; }
  std::size_t tensors = 0, operations = 0;
};

}  // namespace

TEST_CASE("a nan in a matrix of h.3 on rank 1 is named with its operation and operands") {
  Config config = tiny("gpt2-mini", 5);
  std::string first = "forward of h.3, micro-batch 0 of rank 1";
  SECTION("ddp") {
    config.sharding.strategy = StrategyKind::ddp;
  }
  SECTION("fsdp") {
    config.sharding.strategy = StrategyKind::fsdp;
  }
  SECTION("zero3, with blocks that are computed again") {
    config.sharding.strategy = StrategyKind::zero3;
    config.sharding.activation_checkpointing = parse_checkpointing("full").value();
  }
  SECTION("two stages of a pipeline, the second with h.3") {
    config.sharding.strategy = StrategyKind::ddp;
    config.sharding.pipeline_parallel = 2;
    config.data.accumulation_steps = 2;
  }
  SECTION("two ranks that share out the heads") {
    config.sharding.strategy = StrategyKind::ddp;
    config.sharding.tensor_parallel = 2;
  }
  const std::string text = explanation(config, 2, "h.3", PlantedPass::forward, kNan);
  CHECK_THAT(text, Contains("the first operation whose output is not finite is linear_forward in " +
                            first) &&
                       Contains("h.3.attn.c_attn.weight f32") &&
                       Contains("1 nan and 0 inf among") && Contains("which wrote f32"));
}

TEST_CASE("the first of several faults is named in the order of the step") {
  Config config = tiny("llama2-7b", 3);
  config.sharding.strategy = StrategyKind::fsdp;
  config.data.accumulation_steps = 2;
  // The backward pass of the last block comes before that of the first, and after all forward passes.
  const std::string text = explanation(config, 2, "layers.1", PlantedPass::backward, kNan);
  CHECK_THAT(text,
             Contains("backward of layers.1, micro-batch 0 of rank 1") && Contains(" nan and "));
}

TEST_CASE("a weight that overflows a product is named with its range") {
  Config config = tiny("gpt2-mini", 2);
  config.sharding.strategy = StrategyKind::fsdp;
  const std::string text = explanation(config, 2, "h.1", PlantedPass::forward, 3e38f);
  CHECK_THAT(text, Contains("forward of h.1, micro-batch 0 of rank 1") && Contains(" to 3e+38"));
}

TEST_CASE("an observed step changes nothing, and every operation is seen") {
  Config config = tiny("gpt2-mini", 2);
  int ranks = 2;
  SECTION("dropout under fsdp, with accumulation") {
    config.model.dropout = 0.1;
    config.data.accumulation_steps = 2;
    config.sharding.strategy = StrategyKind::fsdp;
  }
  SECTION("a mixture of experts that moves its biases") {
    config.model = test::tiny_model("qwen3-moe-mini", 8);
    config.model.vocab_size = 19;
    config.moe.balance = GENERATE(Balance::bias, Balance::lagged);
    config.sharding.strategy = StrategyKind::zero3;
  }
  SECTION("a pipeline with tied ends") {
    config.sharding.strategy = StrategyKind::ddp;
    config.sharding.pipeline_parallel = 2;
    config.data.accumulation_steps = 2;
  }
  SECTION("bf16 masters") {
    config.runtime.compute_dtype = DType::bf16;
    config.optimizer.master_dtype = DType::bf16;
    config.sharding.strategy = StrategyKind::zero1;
  }
  SECTION("one rank") {
    ranks = 1;
  }
  const test::TrainedSession expected =
      test::train_session(config, ranks, {.count = 3, .device = test::device()});
  test::Findings findings;
  const test::TrainedSession observed = test::train_session(
      config, ranks,
      {.count = 3,
       .device = test::device(),
       .after = [&](TrainingSession& session, Communicator&, int step) {
         Counter counter;
         const BatchSource source = random_tokens(resolve(config).config.data, 19);
         session.observe(step + 1, source, counter);
         findings.expect(
             counter.operations > 20 && counter.tensors > 2 * counter.operations,
             fmt::format("{} operations, {} tensors", counter.operations, counter.tensors));
         findings.expect(operation_observer() == nullptr, "the observer stays");
       }});
  CHECK(findings.wrong() == std::vector<std::string>{});
  CHECK(observed.losses == expected.losses);
  CHECK(observed.norms == expected.norms);
  CHECK(observed.router_losses == expected.router_losses);
  CHECK((observed.weights == expected.weights));
}

TEST_CASE("a run with on_nonfinite=explain ends with the operation that overflowed", "[cpu]") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.on_nonfinite = OnNonfinite::explain;
  config.runtime.ranks = 2;
  config.sharding.strategy = StrategyKind::fsdp;
  test::diverge(config);
  CHECK_THAT(test::error_of([&] { train(config); }),
             Contains("step 2: the loss is ") &&
                 Contains("the first operation whose output is not finite is ") &&
                 Contains(" in forward of ") &&
                 Contains("The run stops before the parameters are touched"));
}

TEST_CASE("a step that is finite when it runs again is said to be so") {
  Config config = tiny("gpt2-mini", 1);
  config.sharding.strategy = StrategyKind::fsdp;
  test::with_session(
      config, 2,
      [&](TrainingSession& session, const BatchSource& source, Communicator& world) {
        const std::string text = explain_nonfinite(session, world, 1, source);
        if (text.find("every value of it is finite") == std::string::npos) fail("{}", text);
      },
      test::device());
}

}  // namespace tessera
