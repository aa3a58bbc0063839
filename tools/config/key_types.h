// The types of keys: how a value is read from text, checked and written.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/dtype.h"
#include "runtime/enum_names.h"
#include "tools/config/keys.h"

namespace tessera {

/// The bounds of a floating-point key: [least, most], or (least, most), or half open.
struct Bounds {
  std::optional<double> least = {};
  std::optional<double> most = {};
  bool least_excluded = false;
  bool most_excluded = false;
};

/// The whole number that all of `text` spells; no value for other texts.
std::optional<std::int64_t> whole_number_from(std::string_view text);

/// A decimal number from `least` to `most`, both included.
Key whole_number_key(std::string name, std::int64_t& field, std::int64_t least, std::int64_t most,
                     std::string documentation);
/// A finite decimal number in `bounds`.
Key number_key(std::string name, double& field, const Bounds& bounds, std::string documentation);
/// "true" or "false".
Key flag_key(std::string name, bool& field, std::string documentation);
Key text_key(std::string name, std::string& field, std::string documentation);
Key path_key(std::string name, std::filesystem::path& field, std::string documentation);

/// "one of a, b, c".
std::string one_of(std::span<const std::string_view> names);

/// A value with a parser of its own, which returns no value for texts of another form.
template <typename Value, typename Parse, typename Write>
Key form_key(std::string name, Value& field, std::string forms, Parse parse, Write write,
             std::string documentation) {
  return {.name = std::move(name),
          .expected = std::move(forms),
          .parse =
              [&field, parse](std::string_view text) {
                const auto value = parse(text);
                if (value) field = *value;
                return value.has_value();
              },
          .text = [&field, write] { return std::string(write(field)); },
          .documentation = std::move(documentation)};
}

/// A value with a name. `names` are static; from_name and to_name map them to values and back.
template <typename Value, typename FromName, typename ToName>
Key name_key(std::string name, Value& field, std::span<const std::string_view> names,
             FromName from_name, ToName to_name, std::string documentation) {
  const auto parse = [names, from_name](std::string_view text) {
    const bool known = std::find(names.begin(), names.end(), text) != names.end();
    return known ? std::optional<Value>(from_name(text)) : std::nullopt;
  };
  return form_key(std::move(name), field, one_of(names), parse, to_name, std::move(documentation));
}

/// One of the names of an enumeration.
template <typename Enum>
Key choice_key(std::string name, Enum& field, std::string documentation) {
  return name_key(std::move(name), field, enum_names<Enum>(), enum_from_name<Enum>, enum_name<Enum>,
                  std::move(documentation));
}

/// One of the names of an enumeration, or `auto`.
template <typename Enum>
Key choice_or_auto_key(std::string name, std::optional<Enum>& field, std::string documentation) {
  using Choice = std::optional<Enum>;
  const auto parse = [](std::string_view text) -> std::optional<Choice> {
    if (text == "auto") return std::make_optional<Choice>();
    for (const std::string_view name : enum_names<Enum>()) {
      if (text == name) return std::make_optional<Choice>(enum_from_name<Enum>(name));
    }
    return std::nullopt;
  };
  const auto write = [](const Choice& choice) {
    return choice ? enum_name(*choice) : std::string_view("auto");
  };
  return form_key(std::move(name), field, "auto or " + one_of(enum_names<Enum>()), parse, write,
                  std::move(documentation));
}

/// A dtype that training computes and reduces in.
Key training_dtype_key(std::string name, DType& field, std::string documentation);
/// A dtype that the optimizer keeps between steps.
Key kept_dtype_key(std::string name, DType& field, std::string documentation);
/// A dtype of 8 bits.
Key fp8_dtype_key(std::string name, DType& field, std::string documentation);

}  // namespace tessera
