// optimizer.name: muon: the parameters that it has, its bits and bytes on every strategy, its work in a
// dry run, and its mistakes.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernels/newton_schulz/op.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/plan/dry_run.h"
#include "tools/plan/plan.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::Findings;
using test::TrainedSession;

Config tiny(const std::string& preset) {
  Config config;
  config.model = test::tiny_model(preset, 8);
  config.model.vocab_size = 19;
  config.data = {.batch_size = 4, .sequence_length = 8};
  config.optimizer.name = OptimizerKind::muon;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.clip_norm = 0.1;
  return config;
}

std::string error_of(const Config& config) {
  return test::error_of([&] { make_model(resolve(config)); });
}

}  // namespace

TEST_CASE("muon: matrices and stacks of experts have it, tables and vectors have adamw") {
  for (const std::string preset : {"gpt2-mini", "qwen3-moe-mini"}) {
    Config config = tiny(preset);
    config.optimizer.groups = {{.match = "*.0.*", .keys = {{"learning_rate_factor", "0.5"}}}};
    const auto model = make_model(resolve(config));
    const ParameterGroups groups = parameter_groups(config.optimizer, *model);
    int matrices = 0;
    for (const Parameter& parameter : parameters_of(*model)) {
      CAPTURE(parameter.name());
      const bool is_table = parameter.name().find("embed") != std::string::npos ||
                            parameter.name().find(".wte") != std::string::npos ||
                            parameter.name().find(".wpe") != std::string::npos ||
                            parameter.name().find("lm_head") != std::string::npos;
      const bool is_matrix = !is_table && parameter.shape().rank() > 1;
      const OptimizerConfig settings = groups.settings_of(parameter);
      CHECK(settings.name == (is_matrix ? OptimizerKind::muon : OptimizerKind::adamw));
      const bool in_group = parameter.name().find(".0.") != std::string::npos;
      CHECK(settings.learning_rate == (in_group ? 5e-3 : 1e-2));
      matrices += is_matrix ? 1 : 0;
    }
    CHECK(matrices > 0);
  }
}

TEST_CASE("muon: every strategy has the bits of ddp and the footprint's bytes") {
  for (const std::string preset : {"gpt2-mini", "qwen3-moe-mini"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Config base = tiny(preset);
      base.optimizer.muon_ns_dtype = dtype;
      base.sharding.strategy = StrategyKind::ddp;
      const TrainedSession expected = test::train_session(base, 4, {.device = test::device()});
      CHECK(expected.losses[0] != expected.losses[1]);
      for (const char* strategy : {"zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
        CAPTURE(preset, name_of(dtype), strategy);
        Findings findings;
        const TrainedSession found = test::train_session(
            variant_of(base, strategy), 4, {.device = test::device(), .findings = &findings});
        INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
        CHECK(findings.wrong().empty());
        CHECK(found.losses == expected.losses);
        CHECK(found.norms == expected.norms);
        CHECK((found.weights == expected.weights));
      }
    }
  }
}

TEST_CASE("muon: a dry run has the work of the matrices that a rank owns", "[cpu]") {
  Config config = tiny("gpt2-mini");
  config.sharding.strategy = StrategyKind::zero3;
  const ResolvedConfig run = resolve(config);
  const Plan plan = make_plan(make_model(run)->units(), run.sharding, {.ranks = 2});
  double all = 0.0;
  for (int rank = 0; rank < 2; ++rank) {
    const StepMemory with = dry_run(run, {.rank = rank, .ranks = 2, .threads = 1});
    config.optimizer.name = OptimizerKind::adamw;
    const StepMemory without = dry_run(resolve(config), {.rank = rank, .ranks = 2, .threads = 1});
    config.optimizer.name = OptimizerKind::muon;
    const auto work = [](const StepMemory& step) {
      double sum = 0.0;
      for (const StreamLog::Entry& entry : step.log.entries()) {
        if (entry.work && entry.work->kind == Work::Kind::forward) sum += entry.work->amount;
      }
      return sum;
    };
    const double expected =
        matrix_flops(plan.groups.front().matrices)[static_cast<std::size_t>(rank)];
    CHECK(work(with) - work(without) == Approx(expected));
    CHECK(with.bytes_sent == without.bytes_sent);  // owners have whole tensors
    all += expected;
  }
  const std::int64_t width = config.model.width;
  CHECK(all == Approx(static_cast<double>(run.config.model.layers) * 280.0 *
                      std::pow(static_cast<double>(width), 3)));
}

TEST_CASE("muon: the page of a plan names its parameters and their owners", "[cpu]") {
  Config config = tiny("gpt2-mini");
  config.sharding.strategy = StrategyKind::fsdp;
  const std::string page = plan(config, {.ranks = 2, .machine = {}, .on_gpus = false});
  CHECK_THAT(page, Contains("orthogonalized in bf16, each by one of 2 ranks"));
  CHECK_THAT(page, Contains("tables") && Contains("muon") && Contains("adamw"));
}

TEST_CASE("muon: mistakes are named") {
  Config config = tiny("gpt2-mini");
  config.optimizer.master_dtype = DType::bf16;
  CHECK_THAT(error_of(config),
             Contains("bf16 is for adamw, which rounds at random; muon keeps f32"));
  if (!test::kOnGpu) return;
  config = tiny("gpt2-mini");
  config.sharding.strategy = StrategyKind::fsdp;
  config.sharding.offload = Offload::optimizer;
  CHECK_THAT(test::error_of([&] { test::train_session(config, 2, {.device = test::device()}); }),
             Contains("muon") && Contains("set sharding.offload=none"));
}

}  // namespace tessera
