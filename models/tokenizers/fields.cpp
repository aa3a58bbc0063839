#include "models/tokenizers/fields.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

const nlohmann::json kNull;

/// A value as a message shows it.
std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return excerpt(value.get_ref<const std::string&>());
  return value.is_structured() ? fmt::format("of type {}", value.type_name()) : value.dump();
}

}  // namespace

Fields::Fields(const nlohmann::json& value, std::string name)
    : value_(value), name_(std::move(name)) {
  check(value.is_object(), "{} is {}; expected an object", name_, shown(value));
}

const nlohmann::json& Fields::at(const char* key) const {
  const auto found = value_.find(key);
  return found == value_.end() ? kNull : *found;
}

bool Fields::is_absent(const char* key) const {
  const nlohmann::json& value = at(key);
  return value.empty() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

std::string Fields::text(const char* key) const {
  const nlohmann::json& value = at(key);
  check(value.is_string(), "{}: '{}' is {}; expected text", name_, key, shown(value));
  return value.get<std::string>();
}

std::string Fields::text(const char* key, const std::string& fallback) const {
  return at(key).is_null() ? fallback : text(key);
}

bool Fields::flag(const char* key, bool fallback) const {
  const nlohmann::json& value = at(key);
  if (value.is_null()) return fallback;
  check(value.is_boolean(), "{}: '{}' is {}; expected true or false", name_, key, shown(value));
  return value.get<bool>();
}

std::int64_t Fields::whole(const char* key, std::int64_t most) const {
  const nlohmann::json& value = at(key);
  const bool good =
      value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  check(good, "{}: '{}' is {}; expected a whole number from 0 to {}", name_, key, shown(value),
        most);
  return value.get<std::int64_t>();
}

Fields Fields::object(const char* key) const {
  return Fields(at(key), key);
}

}  // namespace tessera
