// From text to a key's value and back.
#include <charconv>
#include <cmath>
#include <optional>

#include "runtime/check.h"
#include "tools/config/keys.h"

namespace tessera {
namespace {

/// The number that the whole of `text` spells in decimal; none if it does not fit the type.
template <typename Number>
std::optional<Number> number_from(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Reads text as the type that a field has. Infinity and NaN are no values of any key.
std::optional<std::int64_t> value_from(std::string_view text, std::int64_t) {
  return number_from<std::int64_t>(text);
}

std::optional<double> value_from(std::string_view text, double) {
  const std::optional<double> number = number_from<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

std::optional<bool> value_from(std::string_view text, bool) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::optional<std::string> value_from(std::string_view text, const std::string&) {
  return std::string(text);
}

std::optional<std::filesystem::path> value_from(std::string_view text,
                                                const std::filesystem::path&) {
  return std::filesystem::path(text);
}

bool is_allowed(const Allowed& allowed, std::int64_t number) {
  return allowed.contains(static_cast<double>(number));
}
bool is_allowed(const Allowed& allowed, double number) {
  return allowed.contains(number);
}
bool is_allowed(const Allowed& allowed, const std::string& text) {
  return allowed.contains(text);
}
bool is_allowed(const Allowed&, bool) {
  return true;
}
bool is_allowed(const Allowed&, const std::filesystem::path&) {
  return true;
}

std::string type_name(std::int64_t) {
  return "a whole number";
}
std::string type_name(double) {
  return "a number";
}
std::string type_name(bool) {
  return "true or false";
}
std::string type_name(const std::string&) {
  return "text";
}
std::string type_name(const std::filesystem::path&) {
  return "a path";
}

/// " >= 0 and < 1", or nothing.
std::string describe_range(const Allowed& allowed) {
  std::string range;
  if (std::isfinite(allowed.least)) {
    range += fmt::format(" {} {}", allowed.least_excluded ? ">" : ">=", allowed.least);
  }
  if (std::isfinite(allowed.most)) {
    range += fmt::format("{} {} {}", range.empty() ? "" : " and",
                         allowed.most_excluded ? "<" : "<=", allowed.most);
  }
  return range;
}

// fmt prints the shortest decimal that reads back to the same double.
template <typename Value>
std::string text_of(const Value& value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::filesystem::path& path) {
  return path.string();
}

}  // namespace

bool Allowed::contains(double number) const {
  const bool high_enough = least_excluded ? number > least : number >= least;
  const bool low_enough = most_excluded ? number < most : number <= most;
  return high_enough && low_enough;
}

bool Allowed::contains(std::string_view text) const {
  if (is_form != nullptr) return is_form(text);
  for (const std::string& choice : choices) {
    if (choice == text) return true;
  }
  return choices.empty();
}

std::string_view Key::section() const {
  return std::string_view(name).substr(0, name.find('.'));
}

bool Key::parse(std::string_view text) const {
  return std::visit(
      [&](auto* target) {
        const auto value = value_from(text, *target);
        if (!value || !is_allowed(allowed, *value)) return false;
        *target = *value;
        return true;
      },
      field);
}

std::string Key::expected() const {
  if (allowed.is_form != nullptr) return allowed.forms;
  if (!allowed.choices.empty()) {
    return fmt::format("one of {}", fmt::join(allowed.choices, ", "));
  }
  return std::visit([&](auto* target) { return type_name(*target) + describe_range(allowed); },
                    field);
}

std::string Key::text() const {
  return std::visit([](auto* target) { return text_of(*target); }, field);
}

}  // namespace tessera
