// The report's page: its data, and that it stands alone. report_check.py draws it in a browser.
#include "tools/report/report.h"

#include <catch2/catch.hpp>

#include "runtime/file.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using nlohmann::json;
using nlohmann::ordered_json;
using test::TemporaryDirectory;

fs::path run_with(const TemporaryDirectory& folder, const std::string& metrics) {
  const fs::path run = folder / "run";
  fs::create_directories(run);
  write_file_atomically(run / "metrics.jsonl", metrics);
  return run;
}

}  // namespace

TEST_CASE("the report's data has a list for every field of metrics.jsonl, and the events") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  train(config);
  const ordered_json data = report_data(config.train.dir);
  const auto lines = test::metrics_of(config.train.dir);
  const ordered_json& columns = data["columns"];
  REQUIRE(columns["step"].size() == 12);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(columns["loss"][i] == lines[i]["loss"]);
    CHECK(columns["peak_bytes.total"][i] == lines[i]["peak_bytes"]["total"]);
    CHECK(columns["val_loss"][i].is_null() == !lines[i].contains("val_loss"));
  }
  CHECK_FALSE(columns.contains("time"));
  CHECK(data["every"] == 1);
  CHECK(data["start"]["strategy"] == "fsdp");
  CHECK(data["start"]["mesh"] == "replica 1 x shard 2");
  CHECK(data["events"].size() == test::events_of(config.train.dir).size());
  // The prediction is that of the plan: the measured figures agree to the byte.
  const ordered_json& predicted = data["start"]["predicted"];
  for (const char* category : {"parameters", "gradients", "optimizer", "communication"}) {
    CAPTURE(category);
    CHECK(predicted[category] == lines.back()["peak_bytes"][category]);
  }
  CHECK(predicted["bytes_sent"] == lines[3]["bytes_sent"]);
}

TEST_CASE("long runs are thinned to lines that keep validation losses and the largest norms") {
  const TemporaryDirectory folder;
  std::string metrics;
  const int steps = 5 * static_cast<int>(kMostReportLines) - 1;
  for (int step = 1; step <= steps; ++step) {
    json line = {{"step", step}, {"max_gradient_norm", step == 777 ? 95.0 : 1.0}};
    if (step == 1003) line["val_loss"] = 2.5;
    metrics += line.dump() + "\n";
  }
  const ordered_json data = report_data(run_with(folder, metrics));
  CHECK(data["every"] == 5);
  const ordered_json& found = data["columns"]["step"];
  CHECK(found.size() <= kMostReportLines + 2);
  CHECK(found[0] == 1);
  CHECK(found[1] == 6);
  CHECK(found.back() == steps);
  const ordered_json& norms = data["columns"]["max_gradient_norm"];
  std::size_t large = 0;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    if (norms[i] == 95.0) large += found[i].get<std::size_t>();
  }
  CHECK(large == 781);  // the line after 777 that is kept
  const auto at = std::find(found.begin(), found.end(), 1003) - found.begin();
  CHECK(data["columns"]["val_loss"][static_cast<std::size_t>(at)] == 2.5);
}

TEST_CASE("a line that a run is writing is left out, and other broken lines are named") {
  const TemporaryDirectory folder;
  const std::string good = "{\"step\": 1, \"loss\": 2}\n";
  CHECK(report_data(run_with(folder, good + "{\"step\": 2, \"lo"))["columns"]["step"].size() == 1);
  CHECK(report_data(run_with(folder, ""))["columns"].empty());
  const auto fails = [&](const std::string& line, const std::string& message) {
    CAPTURE(line);
    REQUIRE_THROWS_WITH(report_data(run_with(folder, good + line + "\n" + good)),
                        Contains("metrics.jsonl:2: ") && Contains(message));
  };
  fails("{\"step\": 2, \"lo", "");
  fails("[1, 2]", "not a line of metrics");
  fails("{\"loss\": 2}", "no whole number 'step'");
  fails("{\"step\": \"2\"}", "no whole number 'step'");
  fails(std::string(200, '[') + std::string(200, ']'), "nested");
  fails("{\"step\": 1, \"step\": 2}", "");
  REQUIRE_THROWS_WITH(report_data(folder / "none"), Contains("name the folder of a run"));
}

TEST_CASE("the page loads nothing, and text of a run cannot end its script") {
  const TemporaryDirectory folder;
  const std::string hostile = "</script><script>alert(1)</script><!--";
  const json event = {{"event", "sample"}, {"step", 1}, {"text", hostile + " \xE2\x80\xA8"}};
  const fs::path run = run_with(folder, event.dump() + "\n{\"step\": 1, \"loss\": 2}\n");
  const std::string page = report_page({run, run});
  CHECK_THAT(page, !Contains(hostile));
  CHECK_THAT(page, Contains("\\u003c/script>\\u003cscript>alert(1)"));
  for (const char* loaded : {"src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    CAPTURE(loaded);
    CHECK_THAT(page, !Contains(loaded));
  }
  for (const char* marker : {"/*STYLE*/", "/*DATA*/", "/*CHARTS*/", "/*PAGE*/"}) {
    CHECK_THAT(page, !Contains(marker));
  }
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  CHECK(data["runs"].size() == 2);
  CHECK(data["runs"][0]["events"][0]["text"] == event["text"]);
}

TEST_CASE("tessera report writes a file and names a folder that is no run") {
  const TemporaryDirectory folder;
  const fs::path run = run_with(folder, "{\"step\": 1, \"loss\": 2}\n");
  const std::string out = folder / "page.html";
  const test::Outcome written = test::run({"report", run.string(), "--out", out});
  CHECK(written.status == 0);
  CHECK(written.out == "wrote " + out + "\n");
  CHECK_THAT(read_text_file(out), Catch::StartsWith("<!doctype html>") && Contains("</html>"));
  const test::Outcome none = test::run({"report", folder.path().string(), "--out", out});
  CHECK(none.status == 1);
  CHECK_THAT(none.err, Contains("metrics.jsonl; name the folder of a run"));
}

}  // namespace tessera
