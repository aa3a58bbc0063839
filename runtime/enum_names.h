// Names of enumerators: one table per enumeration, for reading, writing and messages.
//
//   enum class Color { red, green };
//   template <>
//   inline constexpr EnumNames<Color> kEnumNames<Color> = {"color", {"red", "green"}};
//
//   name_of(Color::red)             // "red"
//   enum_from_name<Color>("blue")   // Error: unknown color 'blue': choose red or green
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace tessera {

/// The kind of thing, for messages, and the enumerators' names in the order of their values 0, 1, ...
template <typename Enum>
struct EnumNames {
  std::string_view kind;
  std::initializer_list<std::string_view> names;
};

/// Specialized for each enumeration that has names.
template <typename Enum>
inline constexpr EnumNames<Enum> kEnumNames = {};

/// Raises Error: unknown KIND 'NAME': choose A, B or C.
[[noreturn]] void fail_unknown_name(std::string_view kind, std::string_view name,
                                    std::initializer_list<std::string_view> names);

template <typename Enum>
constexpr std::string_view enum_name(Enum value) {
  return kEnumNames<Enum>.names.begin()[static_cast<int>(value)];
}

/// Raises Error that lists the names.
template <typename Enum>
Enum enum_from_name(std::string_view name) {
  int value = 0;
  for (const std::string_view candidate : kEnumNames<Enum>.names) {
    if (candidate == name) return static_cast<Enum>(value);
    ++value;
  }
  fail_unknown_name(kEnumNames<Enum>.kind, name, kEnumNames<Enum>.names);
}

}  // namespace tessera
