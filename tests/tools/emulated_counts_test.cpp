// The work of a step as bench_counts moves it about, and the kernel that it counts at its full size.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tools/bench/counts/emulated/count_norm.h"
#include "tools/bench/counts/emulated/step_work.h"
#include "tools/bench/counts/reduced_model.h"

namespace tessera {
namespace {

/// Work whose counters are `first`, `first` + 1, ...
KernelWork work_from(double first) {
  KernelWork work;
  for (double& counter : work.counters) counter = first++;
  return work;
}

void require_same(const StepWork& a, const StepWork& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [key, work] : a) {
    REQUIRE(b.at(key).counters == work.counters);
  }
}

}  // namespace

TEST_CASE("a step's work comes back from JSON as it was") {
  const StepWork step = {{{StepPhase::forward, "a/kernel"}, work_from(1e15)},
                         {{StepPhase::backward, "a/kernel"}, work_from(0.25)},
                         {{StepPhase::optimizer, "b/kernel"}, KernelWork()}};
  require_same(step_work_of(nlohmann::json::parse(to_json(step).dump())), step);
  require_same(step_work_of(to_json(StepWork())), {});
}

TEST_CASE("the norms of all layers take the work of one at its full size") {
  const std::pair norms(StepPhase::backward, std::string("layer_norm/backward_kernel"));
  const std::pair others(StepPhase::backward, std::string("swiglu/backward_kernel"));
  KernelWork of_layer = work_from(100), of_step = work_from(5000), once = work_from(30);
  of_layer.counters[0] = 2;  // launches
  of_step.counters[0] = 25;
  once.counters[0] = 1;
  StepWork layer = {{norms, of_layer}, {others, work_from(7)}};
  StepWork step = {{norms, of_step}, {others, work_from(9)}};
  take_norm_backward(step, layer, /*layers=*/12, {{norms, once}});
  REQUIRE(layer.at(norms)["launches"] == 2);
  REQUIRE(step.at(norms)["launches"] == 25);
  REQUIRE(layer.at(norms).counters[3] == 2 * 33);
  REQUIRE(step.at(norms).counters[3] == 5003 + 12 * (2 * 33 - 103));
  require_same({{others, layer.at(others)}}, {{others, work_from(7)}});
  require_same({{others, step.at(others)}}, {{others, work_from(9)}});
}

TEST_CASE("a norm's backward pass at its full size is one launch of the model's kernel") {
  for (const auto& [model, kernel] : {std::pair("gpt2-mini", "layer_norm/backward_kernel"),
                                      {"llama3-mini", "rms_norm/backward_kernel"}}) {
    const ReducedModel reduced({.model = model, .overrides = {"data.sequence_length=16"}});
    const StepWork norm = count_norm_backward(reduced);
    REQUIRE(norm.size() == 1);
    REQUIRE(norm.begin()->first == std::pair(StepPhase::backward, std::string(kernel)));
    REQUIRE(norm.begin()->second["launches"] == 1);
    REQUIRE(norm.begin()->second["blocks"] == 8);  // 4 x 16 rows, 8 a chunk
  }
}

}  // namespace tessera
