// Lines of metrics, the meter that fills them, and the progress bar.
#include "tools/train/metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "runtime/context.h"
#include "runtime/file.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/temporary_directory.h"
#include "tools/data/read_times.h"
#include "tools/train/events.h"
#include "tools/train/meter.h"
#include "tools/train/progress.h"
#include "tools/train/rates.h"

namespace tessera {
namespace {

using nlohmann::json;

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 7;
  metrics.loss = 2.3456788f;
  metrics.learning_rate = 1e-3;
  metrics.gradient_norm = 0.5;
  metrics.peak_bytes[static_cast<int>(Category::optimizer)] = 12345;
  metrics.peak_total = 99999;
  metrics.memory_retries = 7;
  metrics.time = "2026-01-02T03:04:05Z";
  return metrics;
}

}  // namespace

TEST_CASE("a metrics line is JSON with the documented fields and no others") {
  StepMetrics metrics = example();
  CHECK_FALSE(json::parse(json_line(metrics)).contains("val_loss"));
  CHECK_FALSE(json::parse(json_line(metrics)).contains("router_loss"));
  metrics.val_loss = 1.5f;
  metrics.val_loss_ema = 1.25f;
  metrics.val_losses = {{"books", 2.0f}};
  metrics.group_learning_rates = {{"*.ln_?.*, tables", 0.5}, {"matrices", 1e-3}};
  metrics.hellaswag = 0.25;
  metrics.router_loss = 0.125;
  metrics.expert_load = {1.5, 2.25};
  metrics.idle_experts = 3;
  metrics.preference = {.accuracy = 0.75, .chosen_reward = 0.5, .rejected_reward = -0.25};
  const json line = json::parse(json_line(metrics));
  std::set<std::string> found, documented;
  for (const auto& [name, value] : line.items()) found.insert(name);
  for (const MetricField& field : metric_fields()) documented.insert(std::string(field.name));
  CHECK(found == documented);
  CHECK(line["step"] == 7);
  CHECK(line["margin"] == 0.75);
  CHECK(line["val_loss_ema"] == 1.25);
  CHECK(line["val_losses"] == json{{"books", 2.0}});
  CHECK(line["val_perplexities"]["books"] == Approx(std::exp(2.0)));
  CHECK(line["group_learning_rates"] == json{{"*.ln_?.*, tables", 0.5}, {"matrices", 1e-3}});
  CHECK(line["hellaswag"] == 0.25);
  CHECK(line["router_loss"] == 0.125);
  CHECK(line["expert_load"] == json{1.5, 2.25});
  CHECK(line["idle_experts"] == 3);
  CHECK(line["peak_bytes"]["optimizer"] == 12345);
  CHECK(line["peak_bytes"]["total"] == 99999);
  CHECK(line["memory_retries"] == 7);
  CHECK(line["time"] == "2026-01-02T03:04:05Z");
}

TEST_CASE("loss text: equal bits give equal text, neighbouring floats different text") {
  StepMetrics a = example();
  StepMetrics b = example();
  CHECK(json_line(a) == json_line(b));
  b.loss = std::nextafter(a.loss, 10.0f);
  CHECK(json_line(a) != json_line(b));
  CHECK(json::parse(json_line(a))["loss"].get<float>() == a.loss);
}

TEST_CASE("an event is JSON with its fields between the step and the time") {
  const RunEvent event = {"eval", 3, {{"val_loss", shortest(0.1f)}, {"ms", std::nan("")}}};
  CHECK(json_line(event, 1.25, "2026-01-02T03:04:05Z") ==
        R"({"event":"eval","step":3,"val_loss":0.1,"ms":null,"elapsed_s":1.25,)"
        R"("time":"2026-01-02T03:04:05Z"})");
}

TEST_CASE("a number that is not finite is null in JSON") {
  StepMetrics metrics = example();
  metrics.gradient_norm = std::numeric_limits<double>::infinity();
  metrics.loss = std::nanf("");
  const json line = json::parse(json_line(metrics));
  CHECK(line["gradient_norm"].is_null());
  CHECK(line["loss"].is_null());
}

TEST_CASE("without a baseline a line has no share of it") {
  StepMetrics metrics = example();
  CHECK(json::parse(json_line(metrics))["matmul_fraction"].is_null());
  CHECK(json::parse(json_line(metrics))["mfu"].is_null());
  CHECK(log_line(metrics, 10).find('%') == std::string::npos);
  metrics.matmul_fraction = 0.25;
  CHECK(json::parse(json_line(metrics))["matmul_fraction"] == 0.25);
  CHECK(log_line(metrics, 10).ends_with("  25%"));
  CHECK(log_heading(metrics, 10).ends_with("matmul"));
  metrics.mfu = 0.375;
  CHECK(json::parse(json_line(metrics))["mfu"] == 0.375);
  CHECK(log_line(metrics, 10).ends_with("  38%"));
  CHECK(log_heading(metrics, 10).ends_with("MFU"));
}

TEST_CASE("a share of a rate above 1 is left out: the rate was measured on a disturbed machine") {
  CHECK(share_of_rate(30.0, 60.0) == 0.5);
  CHECK_FALSE(share_of_rate(61.0, 60.0).has_value());
  CHECK_FALSE(share_of_rate(61.0, 0.0).has_value());
  CHECK_FALSE(share_of_rate(61.0, std::nullopt).has_value());
}

TEST_CASE("log lines have fixed columns and with the clock fit 79 characters") {
  StepMetrics metrics = example();
  metrics.matmul_fraction = 0.5;
  metrics.ms.step = 12345.67;
  metrics.tokens_per_second = 1234567.0;
  for (const std::int64_t steps : {1, 100, 99999}) {
    CAPTURE(steps);
    metrics.step = steps;
    metrics.val_loss.reset();
    const std::string without = log_line(metrics, steps);
    metrics.val_loss = 2.5f;
    const std::string with = log_line(metrics, steps);
    CHECK(with.size() <= 69);  // a clock stands before them
    CHECK(without.size() == with.size());
    CHECK(log_heading(metrics, steps).size() == with.size());
  }
}

TEST_CASE("the meter reports means per step, and the peaks and times of the largest rank") {
  json first, second;
  std::string slowest_file;
  run_ranks({.ranks = 3, .threads = 1}, [&](Communicator& world) {
    IntervalMeter::Clock::time_point now;  // each rank's own
    IntervalMeter meter(world, [&now] { return now; });
    const auto line = [&](std::int64_t elements, int steps, std::chrono::milliseconds step_time) {
      meter.start();
      {
        const CategoryScope category(Category::activations);
        const Tensor kept = Tensor::zeros({elements}, DType::f32);
        for (int i = 1; i <= steps; ++i) {
          const TimePoint begin = {.host = now};
          now += step_time;
          context().profiler().add("forward", "compute", begin, {.host = now});
          auto& reads = context().state<ReadTimes>().ms;
          reads["a.bin"] += 0.4 * static_cast<double>(step_time.count());
          reads["b.bin"] += 0.1 * static_cast<double>(step_time.count());
          meter.add_step({.loss = static_cast<float>(i), .gradient_norm = 10.0 - i});
        }
      }
      meter.stop();
      StepMetrics metrics = example();
      meter.fill(metrics);
      // The mean of the interval, not the last step's nor the sum: on every rank the same.
      return metrics;
    };
    using std::chrono::milliseconds;
    const bool largest = world.rank() == 1;
    const StepMetrics a = line(largest ? 5000 : 1000, 4, milliseconds(largest ? 60 : 5));
    const StepMetrics b = line(100, 2, milliseconds(5));
    if (world.rank() != 2) return;
    slowest_file = a.slowest_file;
    first = json::parse(json_line(a));
    second = json::parse(json_line(b));
  });
  CHECK(first["slowest_rank"] == 1);
  CHECK(first["peak_rank"] == 1);
  CHECK(first["peak_bytes"]["activations"] == 20000);
  CHECK(first["step_ms"] == 60.0);
  CHECK(first["forward_ms"] == 60.0);
  CHECK(first["data_read_ms"] == 30.0);
  CHECK(slowest_file == "a.bin");
  CHECK(first["mean_loss"] == 2.5);
  CHECK(first["max_gradient_norm"] == 9.0);
  // Peaks and times begin again after each line.
  CHECK(second["peak_bytes"]["activations"] == 400);
  CHECK(second["step_ms"] == 5.0);
  CHECK(second["forward_ms"] == 5.0);
  CHECK(second["mean_loss"] == 1.5);
}

TEST_CASE("steps that wait for data are warned of with what they wait for") {
  StepMetrics metrics = example();
  metrics.ms = {.step = 40.0, .data = 14.0, .data_read = 12.5};
  metrics.slowest_file = "data/train.bin";
  CHECK(data_warning(metrics) ==
        "data take 35% of a step: 14.0 of 40.0 ms, of which 12.5 ms in reading data/train.bin");
  metrics.ms.data_read = 1.0;
  CHECK(data_warning(metrics) ==
        "data take 35% of a step: 14.0 of 40.0 ms, most of it in making rows of tokens");
  metrics.ms.data = 7.0;
  CHECK(data_warning(metrics) == "");
  metrics.ms = {.step = 6.0, .data = 4.0};  // a tiny model
  CHECK(data_warning(metrics) == "");
}

TEST_CASE("the progress bar shows share, steps, loss and remaining time") {
  CHECK(Progress::bar(500, 2000, 90.0, 1.98765f, 100) ==
        "[#######                       ]  25%  500/2000  loss 1.9877  1:30 left");
  CHECK(Progress::bar(2000, 2000, 0.0, 1.5f, 100) ==
        "[##############################] 100%  2000/2000  loss 1.5000  0:00 left");
  CHECK(Progress::bar(1, 100, 9900.0, 2.0f, 100) ==
        "[                              ]   1%  1/100  loss 2.0000  2:45:00 left");
}

TEST_CASE("the progress bar fits every width of a terminal") {
  for (int columns = 1; columns <= 120; ++columns) {
    CAPTURE(columns);
    CHECK(Progress::bar(500, 2000, 90.0, 1.98765f, columns).size() <=
          static_cast<std::size_t>(columns));
  }
  CHECK(Progress::bar(500, 2000, 90.0, 1.98765f, 50) ==
        "[##       ]  25%  500/2000  loss 1.9877  1:30 left");
  CHECK(Progress::bar(500, 2000, 90.0, 1.98765f, 40) == " 25%  500/2000  loss 1.9877  1:30 left");
  CHECK(Progress::bar(500, 2000, 90.0, 1.98765f, 30) == " 25%  500/2000  1:30 left");
}

}  // namespace tessera
