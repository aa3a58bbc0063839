#include "models/config_reader.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace tessera {
namespace {

bool fits_in_63_bits(const nlohmann::json& value) {
  return !value.is_number_unsigned() ||
         value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
}

}  // namespace

void ConfigReader::fail_on(const char* key, const nlohmann::json& value,
                           std::string_view expected) const {
  const auto handler = nlohmann::json::error_handler_t::replace;
  const std::string text =
      value.is_string() ? value.get_ref<const std::string&>() : value.dump(-1, ' ', false, handler);
  fail("config.json: {}{} is {}; expected {}", prefix_, key, excerpt(text), expected);
}

const nlohmann::json* ConfigReader::find(const char* key) const {
  const auto found = config_.find(key);
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t ConfigReader::whole(const char* key) const {
  const nlohmann::json* value = find(key);
  check(value != nullptr, "config.json: {}{} is missing; expected a whole number", prefix_, key);
  if (!value->is_number_integer() || !fits_in_63_bits(*value)) {
    fail_on(key, *value, "a whole number");
  }
  return value->get<std::int64_t>();
}

std::int64_t ConfigReader::whole(const char* key, std::int64_t fallback) const {
  return has(key) ? whole(key) : fallback;
}

std::vector<std::int64_t> ConfigReader::wholes(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  std::vector<std::int64_t> numbers;
  if (!value->is_array()) fail_on(key, *value, "a list of whole numbers");
  for (const nlohmann::json& element : *value) {
    if (!element.is_number_integer() || !fits_in_63_bits(element)) {
      fail_on(key, *value, "a list of whole numbers");
    }
    numbers.push_back(element.get<std::int64_t>());
  }
  return numbers;
}

std::vector<double> ConfigReader::numbers(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  const bool all = value->is_array() &&
                   std::all_of(value->begin(), value->end(),
                               [](const nlohmann::json& number) { return number.is_number(); });
  if (!all) fail_on(key, *value, "a list of numbers");
  return value->get<std::vector<double>>();
}

bool ConfigReader::flag(const char* key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail_on(key, *value, "true or false");
  return value->get<bool>();
}

std::optional<ConfigReader> ConfigReader::object(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail_on(key, *value, "an object");
  return ConfigReader(*value, prefix_ + key + ".");
}

double ConfigReader::number(const char* key, double fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) fail_on(key, *value, "a number");
  return value->get<double>();
}

std::string ConfigReader::text(const char* key, const std::string& fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) fail_on(key, *value, "a text");
  return value->get<std::string>();
}

void ConfigReader::require(const char* key, bool expected) const {
  const nlohmann::json* value = find(key);
  if (value != nullptr && *value != expected) {
    fail_on(key, *value,
            expected ? "true, the only supported value" : "false, the only supported value");
  }
}

}  // namespace tessera
