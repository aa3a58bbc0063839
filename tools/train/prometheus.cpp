#include "tools/train/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tools/train/metrics.h"

namespace tessera {
namespace {

/// With the characters escaped that end a label or a line.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    c == '\n' ? result += "\\n" : result += c;
  }
  return result;
}

std::string heading(const std::string& name, std::string_view meaning) {
  return fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, meaning);
}

template <typename Number>
std::string sample(const std::string& name, std::string_view label, const std::string& value,
                   const Number& number) {
  return fmt::format("{}{{{}=\"{}\"}} {}\n", name, label, escaped(value), number.dump());
}

std::string_view meaning_of(std::string_view field) {
  const std::vector<MetricField>& fields = metric_fields();
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const MetricField& known) { return known.name == field; });
  return found == fields.end() ? "" : found->meaning;
}

}  // namespace

std::string prometheus_text(const nlohmann::json& line) {
  std::string text;
  for (const auto& [field, value] : line.items()) {
    const std::string name = "tessera_" + field;
    std::string samples;
    if (value.is_number()) samples = fmt::format("{} {}\n", name, value.dump());
    if (value.is_structured()) {
      // A list's keys are "0", "1", ...
      for (const auto& [key, number] : value.items()) {
        if (number.is_number()) samples += sample(name, "key", key, number);
      }
    }
    if (!samples.empty()) text += heading(name, meaning_of(field)) + samples;
  }
  return text;
}

std::string prometheus_watch(const nlohmann::ordered_json& readings) {
  std::string text;
  const auto& units = readings.at("units");
  for (const auto& [field, values] : readings.items()) {
    if (field == "units") continue;
    const std::string name = "tessera_watch_" + field;
    text += heading(name, "A reading of the last watched step.");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!values[i].is_number()) continue;
      text += sample(name, "unit", units[i].get<std::string>(), values[i]);
    }
  }
  return text;
}

}  // namespace tessera
