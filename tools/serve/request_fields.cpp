#include "tools/serve/request_fields.h"

#include <utility>

#include "runtime/json.h"
#include "tools/data/json_entries.h"
#include "tools/serve/api_error.h"

namespace tessera {

using nlohmann::json;

RequestFields::RequestFields(const json& object, std::string place)
    : object_(object), place_(std::move(place)) {
  check_request(object.is_object(), "{} is {}; expected a JSON object", place_, shown(object));
}

const json* RequestFields::find(const std::string& name) {
  read_.insert(name);
  const auto field = object_.find(name);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t least,
                                                   std::int64_t most) {
  const json* const field = find(name);
  if (field == nullptr) return std::nullopt;
  // As doubles: a number beyond 64 bits is parsed as one.
  const bool fits = field->is_number_integer() &&
                    field->get<double>() >= static_cast<double>(least) &&
                    field->get<double>() <= static_cast<double>(most);
  check_request(fits, "'{}' is {}; expected an integer from {} to {}", name, shown(*field), least,
                most);
  return field->get<std::int64_t>();
}

std::optional<double> RequestFields::number(const std::string& name, double least, double most) {
  const json* const field = find(name);
  if (field == nullptr) return std::nullopt;
  const bool fits =
      field->is_number() && field->get<double>() >= least && field->get<double>() <= most;
  check_request(fits, "'{}' is {}; expected a number from {} to {}", name, shown(*field), least,
                most);
  return field->get<double>();
}

bool RequestFields::boolean(const std::string& name) {
  const json* const field = find(name);
  if (field == nullptr) return false;
  check_request(field->is_boolean(), "'{}' is {}; expected true or false", name, shown(*field));
  return field->get<bool>();
}

std::string RequestFields::text(const std::string& name) {
  const json* const field = find(name);
  if (field == nullptr) return {};
  check_request(field->is_string(), "'{}' is {}; expected a text", name, shown(*field));
  return field->get<std::string>();
}

void RequestFields::refuse_unless(const std::string& name, const json& neutral) {
  const json* const field = find(name);
  check_request(field == nullptr || *field == neutral, "'{}' is not supported: leave it out", name);
}

void RequestFields::finish() const {
  for (const auto& [name, value] : object_.items()) {
    check_request(value.is_null() || read_.contains(name), "{} has the unknown field {}", place_,
                  excerpt(name));
  }
}

}  // namespace tessera
