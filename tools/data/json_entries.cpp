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

JsonEntries::JsonEntries(const json& object) : object_(object) {
  check(object.is_object(), "a value is {}; expected an object", shown(object));
}

const json& JsonEntries::at(const char* key) const {
  const auto entry = object_.find(key);
  check(entry != object_.end(), "{} is missing", key);
  return *entry;
}

std::string JsonEntries::text(const char* key) const {
  check(at(key).is_string(), "{} is {}; expected text", key, shown(at(key)));
  return at(key).get<std::string>();
}

std::int64_t JsonEntries::integer(const char* key, std::int64_t least, std::int64_t most) const {
  const json& value = at(key);
  const bool in_range =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value <= static_cast<std::uint64_t>(most)) &&
      value >= least && value <= most;
  check(in_range, "{} is {}; expected a whole number from {} to {}", key, shown(value), least,
        most);
  return value.get<std::int64_t>();
}

std::uint64_t JsonEntries::checksum(const char* key) const {
  const std::string digits = text(key);
  std::uint64_t value = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value, 16);
  check(error == std::errc() && end == last, "{} is {}; expected a number of 16 hexadecimal digits",
        key, excerpt(digits));
  return value;
}

}  // namespace tessera
