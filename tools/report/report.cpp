#include "tools/report/report.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tools/report/page_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct RunLines {
  std::vector<Json> steps;
  std::vector<Json> events;
  /// Events of watched steps.
  std::vector<Json> watches;
};

/// A line of a hostile file may be any JSON. The page gets objects with a whole step.
bool is_line(const Json& line) {
  return line.is_object() && line.contains("step") && line["step"].is_number_integer();
}

RunLines read_lines(const fs::path& path) {
  std::ifstream file(path);
  check(file.good(), "cannot open {}; name the folder of a run (train.dir)", path.string());
  RunLines lines;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (file.eof()) break;  // no end of line: the run is writing it
    Json line;
    try {
      line = parse_json(text, 8);
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", path.string(), number, error.what()));
    }
    check(is_line(line), "{}:{}: not a line of metrics: it has no whole number 'step'",
          path.string(), number);
    if (!line.contains("event")) {
      lines.steps.push_back(std::move(line));
    } else {
      (line["event"] == "watch" ? lines.watches : lines.events).push_back(std::move(line));
    }
  }
  return lines;
}

/// {"peak_bytes": {"total": 1}} as {"peak_bytes.total": 1}. Lists stay, texts are left out.
Json flat(const Json& line) {
  Json numbers;
  for (const auto& [name, value] : line.items()) {
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) {
        if (inner.is_number()) numbers[name + "." + key] = inner;
      }
    } else if (value.is_number() || value.is_array()) {
      numbers[name] = value;
    }
  }
  return numbers;
}

/// Every `every`-th line and those with a measurement of the model. A kept line has the largest norm of those
/// that were left out before it.
std::vector<Json> thinned(const std::vector<Json>& lines, std::size_t every) {
  constexpr const char* kNorm = "max_gradient_norm";
  std::vector<Json> kept;
  double largest = 0.0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Json line = flat(lines[i]);
    const bool has_norm = line.contains(kNorm) && line[kNorm].is_number();
    if (has_norm) largest = std::max(largest, line[kNorm].get<double>());
    const bool measured = line.contains("val_loss") || line.contains("hellaswag");
    if (i % every != 0 && i + 1 != lines.size() && !measured) continue;
    if (has_norm) line[kNorm] = largest;
    largest = 0.0;
    kept.push_back(std::move(line));
  }
  return kept;
}

Json columns_of(const std::vector<Json>& lines) {
  std::set<std::string> names;
  for (const Json& line : lines) {
    for (const auto& [name, value] : line.items()) names.insert(name);
  }
  Json columns = Json::object();
  for (const std::string& name : names) {
    Json column = Json::array();
    for (const Json& line : lines) column.push_back(line.contains(name) ? line[name] : Json());
    columns[name] = std::move(column);
  }
  return columns;
}

/// Every `every`-th watched step, of those with lists, as the page needs them.
Json watches_of(const std::vector<Json>& watches) {
  const std::size_t every = (watches.size() + kMostReportWatches - 1) / kMostReportWatches;
  Json kept = Json::array();
  for (std::size_t i = 0; i < watches.size(); i += every) {
    Json watch = {{"step", watches[i]["step"]}};
    for (const auto& [name, value] : watches[i].items()) {
      if (value.is_array()) watch[name] = value;
    }
    if (watch.contains("units")) kept.push_back(std::move(watch));
  }
  return kept;
}

/// `text` with `marker` replaced, which occurs once.
void put(std::string& text, std::string_view marker, std::string_view value) {
  const std::size_t at = text.find(marker);
  check(at != std::string::npos, "the page has no {}", marker);
  text.replace(at, marker.size(), value);
}

/// JSON that is safe inside <script>: no '<' can begin "</script>".
std::string for_script(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    c == '<' ? text += "\\u003c" : text += c;
  }
  return text;
}

}  // namespace

Json report_data(const fs::path& run) {
  const RunLines lines = read_lines(run / "metrics.jsonl");
  const std::size_t every = (lines.steps.size() + kMostReportLines - 1) / kMostReportLines;
  Json start = Json::object();
  for (const Json& event : lines.events) {
    if (event["event"] == "start") start = event;
  }
  Json data = {{"name", run.string()},
               {"start", start},
               {"every", std::max<std::size_t>(1, every)},
               {"columns", columns_of(thinned(lines.steps, std::max<std::size_t>(1, every)))},
               {"events", lines.events},
               {"watch", watches_of(lines.watches)}};
  const fs::path memory = run / "profile" / "memory.json";
  if (fs::exists(memory)) data["memory"] = read_json_file(memory);
  return data;
}

std::string report_page(const std::vector<fs::path>& runs) {
  Json data = {{"written", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
               {"runs", Json::array()}};
  for (const fs::path& run : runs) data["runs"].push_back(report_data(run));
  std::string page(kPageHtml);
  put(page, "/*STYLE*/", kStyleCss);
  put(page, "/*CHARTS*/", kChartsJs);
  put(page, "/*PAGE*/", kPageJs);
  put(page, "/*DATA*/", for_script(data));
  return page;
}

}  // namespace tessera
