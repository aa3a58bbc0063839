#include "tools/watch/unit_readings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tools/train/events.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json number_of(const std::optional<float>& value) {
  return value ? finite_or_null(*value) : Json();
}

struct Column {
  const char* name;
  std::function<Json(const UnitReadings&)> value;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"gradient_norm", [](const UnitReadings& r) { return finite_or_null(r.gradient_norm); }},
      {"update_norm", [](const UnitReadings& r) { return finite_or_null(r.update_norm); }},
      {"weight_norm", [](const UnitReadings& r) { return finite_or_null(r.weight_norm); }},
      {"update_ratio",
       [](const UnitReadings& r) { return finite_or_null(r.update_norm / r.weight_norm); }},
      {"largest_activation", [](const UnitReadings& r) { return number_of(r.largest_activation); }},
      {"attention_logit", [](const UnitReadings& r) { return number_of(r.attention_logit); }},
      {"router_entropy",
       [](const UnitReadings& r) { return r.router_entropy ? Json(*r.router_entropy) : Json(); }},
  };
  return all;
}

}  // namespace

Json json_of(const std::vector<UnitReadings>& readings) {
  Json json = {{"units", Json::array()}};
  for (const UnitReadings& unit : readings) json["units"].push_back(unit.unit);
  const bool routed = std::any_of(readings.begin(), readings.end(), [](const UnitReadings& unit) {
    return unit.router_entropy.has_value();
  });
  for (const Column& column : columns()) {
    if (!routed && column.name == std::string_view("router_entropy")) continue;
    Json values = Json::array();
    for (const UnitReadings& unit : readings) values.push_back(column.value(unit));
    json[column.name] = std::move(values);
  }
  return json;
}

std::vector<std::pair<std::string, double>> watch_scalars(const Json& readings) {
  std::vector<std::pair<std::string, double>> scalars;
  const Json& units = readings.at("units");
  for (const auto& [name, values] : readings.items()) {
    if (name == "units") continue;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_null()) continue;
      scalars.emplace_back(fmt::format("watch/{}/{}", name, units[i].get<std::string>()),
                           values[i]);
    }
  }
  return scalars;
}

}  // namespace tessera
