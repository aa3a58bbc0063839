#include "tools/config/key_types.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace tessera {
namespace {

/// The number that the whole of `text` spells in decimal; no value if it does not fit the type.
template <typename Number>
std::optional<Number> number_from(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool contains(const Bounds& bounds, double number) {
  if (!std::isfinite(number)) return false;
  if (bounds.least && (bounds.least_excluded ? number <= *bounds.least : number < *bounds.least)) {
    return false;
  }
  return !bounds.most || (bounds.most_excluded ? number < *bounds.most : number <= *bounds.most);
}

/// "a number >= 0 and < 1".
std::string describe(const Bounds& bounds) {
  std::string text = "a number";
  if (bounds.least)
    text += fmt::format(" {} {}", bounds.least_excluded ? ">" : ">=", *bounds.least);
  if (bounds.least && bounds.most) text += " and";
  if (bounds.most) text += fmt::format(" {} {}", bounds.most_excluded ? "<" : "<=", *bounds.most);
  return text;
}

std::optional<bool> flag_from(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

/// A dtype with one of these names.
Key dtype_key(std::string name, DType& field, std::span<const std::string_view> names,
              std::string documentation) {
  const auto write = [](DType dtype) { return name_of(dtype); };
  return name_key(std::move(name), field, names, dtype_from_name, write, std::move(documentation));
}

}  // namespace

std::string one_of(std::span<const std::string_view> names) {
  return fmt::format("one of {}", fmt::join(names, ", "));
}

std::optional<std::int64_t> whole_number_from(std::string_view text) {
  return number_from<std::int64_t>(text);
}

Key whole_number_key(std::string name, std::int64_t& field, std::int64_t least, std::int64_t most,
                     std::string documentation) {
  const auto parse = [=](std::string_view text) {
    const std::optional<std::int64_t> number = whole_number_from(text);
    return number && *number >= least && *number <= most ? number : std::nullopt;
  };
  const auto write = [](std::int64_t number) { return fmt::format("{}", number); };
  return form_key(std::move(name), field, fmt::format("a whole number from {} to {}", least, most),
                  parse, write, std::move(documentation));
}

Key number_key(std::string name, double& field, const Bounds& bounds, std::string documentation) {
  const auto parse = [=](std::string_view text) {
    const std::optional<double> number = number_from<double>(text);
    return number && contains(bounds, *number) ? number : std::nullopt;
  };
  // fmt prints the shortest decimal that reads back to the same double.
  const auto write = [](double number) { return fmt::format("{}", number); };
  return form_key(std::move(name), field, describe(bounds), parse, write, std::move(documentation));
}

Key flag_key(std::string name, bool& field, std::string documentation) {
  return form_key(
      std::move(name), field, "true or false", flag_from,
      [](bool flag) { return flag ? "true" : "false"; }, std::move(documentation));
}

Key text_key(std::string name, std::string& field, std::string documentation) {
  return form_key(
      std::move(name), field, "text",
      [](std::string_view text) { return std::optional(std::string(text)); },
      [](const std::string& text) { return text; }, std::move(documentation));
}

Key path_key(std::string name, std::filesystem::path& field, std::string documentation) {
  return form_key(
      std::move(name), field, "a path",
      [](std::string_view text) { return std::optional(std::filesystem::path(text)); },
      [](const std::filesystem::path& path) { return path.string(); }, std::move(documentation));
}

Key training_dtype_key(std::string name, DType& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"f32", "bf16", "f16"};
  return dtype_key(std::move(name), field, kNames, std::move(documentation));
}

Key kept_dtype_key(std::string name, DType& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"f32", "bf16"};
  return dtype_key(std::move(name), field, kNames, std::move(documentation));
}

Key fp8_dtype_key(std::string name, DType& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"e4m3", "e5m2"};
  return dtype_key(std::move(name), field, kNames, std::move(documentation));
}

}  // namespace tessera
