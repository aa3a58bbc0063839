#include "tools/data/json_entries.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

using nlohmann::json;

std::string shown(const json& value) {
  if (value.is_number()) return value.dump();
  return value.is_string() ? excerpt(value.get<std::string>())
                           : fmt::format("of type {}", value.type_name());
}

std::string hexadecimal(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

JsonEntries::JsonEntries(const json& object, std::string place)
    : object_(object), place_(std::move(place)) {
  check(object.is_object(), "{} is {}; expected an object", place_.empty() ? "a value" : place_,
        shown(object));
}

std::string JsonEntries::name_of(const char* key) const {
  return place_.empty() ? key : fmt::format("{}: {}", place_, key);
}

void JsonEntries::expect(bool holds, const char* key, const std::string& expected) const {
  check(holds, "{} is {}; expected {}", name_of(key), shown(at(key)), expected);
}

bool JsonEntries::has(const char* key) const {
  return object_.contains(key);
}

const json& JsonEntries::at(const char* key) const {
  const auto entry = object_.find(key);
  check(entry != object_.end(), "{} is missing", name_of(key));
  return *entry;
}

JsonEntries JsonEntries::object(const char* key) const {
  return JsonEntries(at(key), name_of(key));
}

std::vector<JsonEntries> JsonEntries::objects(const char* key) const {
  expect(at(key).is_array(), key, "a list");
  std::vector<JsonEntries> all;
  for (const json& element : at(key)) {
    all.emplace_back(element, fmt::format("{}[{}]", name_of(key), all.size()));
  }
  return all;
}

bool JsonEntries::flag(const char* key) const {
  expect(at(key).is_boolean(), key, "true or false");
  return at(key).get<bool>();
}

std::string JsonEntries::text(const char* key) const {
  expect(at(key).is_string(), key, "text");
  return at(key).get<std::string>();
}

double JsonEntries::number(const char* key, bool zero) const {
  const json& value = at(key);
  expect(value.is_number() && (value > 0.0 || (zero && value == 0.0)), key,
         zero ? "a number that is not negative" : "a positive number");
  return value.get<double>();
}

std::int64_t JsonEntries::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const json& value = at(key);
  const bool in_range =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value <= static_cast<std::uint64_t>(most)) &&
      value >= least && value <= most;
  expect(in_range, key, fmt::format("a whole number from {} to {}", least, most));
  return value.get<std::int64_t>();
}

std::uint64_t JsonEntries::checksum(const char* key) const {
  const std::string digits = text(key);
  std::uint64_t value = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value, 16);
  expect(error == std::errc() && end == last, key, "a number of 16 hexadecimal digits");
  return value;
}

}  // namespace tessera
