#include "tools/train/metrics.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/file.h"
#include "tests/support/temporary_directory.h"
#include "tools/train/progress.h"

namespace tessera {
namespace {

StepMetrics example() {
  StepMetrics metrics{.step = 7, .loss = 2.3456788f, .learning_rate = 1e-3, .gradient_norm = 0.5};
  metrics.memory.categories[static_cast<int>(Category::optimizer)].peak = 12345;
  metrics.memory.total.peak = 99999;
  return metrics;
}

}  // namespace

TEST_CASE("a metrics line is JSON with the documented names") {
  StepMetrics metrics = example();
  CHECK_FALSE(nlohmann::json::parse(json_line(metrics)).contains("val_loss"));
  metrics.val_loss = 1.5f;
  const auto line = nlohmann::json::parse(json_line(metrics));
  for (const char* name :
       {"step", "loss", "learning_rate", "gradient_norm", "tokens_per_second", "step_ms", "data_ms",
        "forward_ms", "backward_ms", "optimizer_ms", "communication_ms", "exposed_communication_ms",
        "bytes_sent", "peak_bytes", "val_loss"}) {
    CHECK(line.contains(name));
  }
  CHECK(line["step"] == 7);
  CHECK(line["peak_bytes"]["optimizer"] == 12345);
  CHECK(line["peak_bytes"]["total"] == 99999);
}

TEST_CASE("loss text: equal bits give equal text, neighbouring floats different text") {
  StepMetrics a = example();
  StepMetrics b = example();
  CHECK(json_line(a) == json_line(b));
  b.loss = std::nextafter(a.loss, 10.0f);
  CHECK(json_line(a) != json_line(b));
  CHECK(nlohmann::json::parse(json_line(a))["loss"].get<float>() == a.loss);
}

TEST_CASE("a number that is not finite is null, for JSON has no other word") {
  StepMetrics metrics = example();
  metrics.gradient_norm = std::numeric_limits<double>::infinity();
  metrics.loss = std::nanf("");
  const auto line = nlohmann::json::parse(json_line(metrics));
  CHECK(line["gradient_norm"].is_null());
  CHECK(line["loss"].is_null());
}

TEST_CASE("without a yardstick there is no fraction of it") {
  StepMetrics metrics = example();
  CHECK(nlohmann::json::parse(json_line(metrics))["matmul_fraction"].is_null());
  CHECK(log_line(metrics, 10).find("matmul rate") == std::string::npos);
  metrics.matmul_fraction = 0.25;
  CHECK(nlohmann::json::parse(json_line(metrics))["matmul_fraction"] == 0.25);
  CHECK(log_line(metrics, 10).find("  25% of matmul rate  ") != std::string::npos);
  CHECK(nlohmann::json::parse(json_line(metrics))["mfu"].is_null());
  CHECK(log_line(metrics, 10).find("MFU") == std::string::npos);
  metrics.mfu = 0.375;
  CHECK(nlohmann::json::parse(json_line(metrics))["mfu"] == 0.375);
  CHECK(log_line(metrics, 10).find("  25% of matmul rate  MFU 38%  ") != std::string::npos);
}

TEST_CASE("an earlier run's metrics are kept under a number") {
  const test::TemporaryDirectory folder;
  for (int run = 0; run < 3; ++run) {
    StepMetrics metrics = example();
    metrics.step = run;
    MetricsFile(folder.path()).write(metrics);
  }
  const auto step_in = [&](const char* name) {
    return nlohmann::json::parse(read_text_file(folder.path() / name))["step"].get<int>();
  };
  CHECK(step_in("metrics.1.jsonl") == 0);
  CHECK(step_in("metrics.2.jsonl") == 1);
  CHECK(step_in("metrics.jsonl") == 2);
}

TEST_CASE("the progress bar shows share, steps, loss and remaining time") {
  CHECK(Progress::bar(500, 2000, 30.0, 1.98765f) ==
        "[#######                       ]  25%  500/2000  loss 1.9877  1:30 left");
  CHECK(Progress::bar(2000, 2000, 30.0, 1.5f) ==
        "[##############################] 100%  2000/2000  loss 1.5000  0:00 left");
  CHECK(Progress::bar(1, 100, 100.0, 2.0f) ==
        "[                              ]   1%  1/100  loss 2.0000  2:45:00 left");
}

}  // namespace tessera
