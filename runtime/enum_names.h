// Names of enumerators: one table per enumeration for reading, writing and messages.
//
//   enum class Color { red, green };
//   template <>
//   inline constexpr EnumNames<Color> kEnumNames<Color> = {"color", {"red", "green"}};
//
//   enum_name(Color::red)           // "red"
//   enum_from_name<Color>("blue")   // Error: unknown color 'blue': choose red or green
//
// The values of the enumerators are 0, 1, 2, ... A table that is too long, or that has an empty or
// repeated name, does not compile. This header is free of fmt, so device code may include it.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// Raises Error: unknown KIND 'NAME': choose A, B or C.
[[noreturn]] void fail_unknown_name(std::string_view kind, std::string_view name,
                                    std::span<const std::string_view> names);
/// Raises Error: KIND has no value NUMBER.
[[noreturn]] void fail_unknown_value(std::string_view kind, long long number);

/// "a, b or c".
std::string listed(std::span<const std::string_view> names);

/// The kind of thing, for messages, and the enumerators' names in the order of their values.
template <typename Enum>
class EnumNames {
 public:
  consteval EnumNames(std::string_view kind, std::initializer_list<std::string_view> names)
      : kind_(kind) {
    for (const std::string_view name : names) {
      if (name.empty()) throw "an enumerator has no name";
      for (std::size_t i = 0; i < count_; ++i) {
        if (names_[i] == name) throw "two enumerators have the same name";
      }
      names_[count_++] = name;  // not a constant expression beyond the array's end
    }
  }

  constexpr std::string_view kind() const { return kind_; }
  constexpr std::span<const std::string_view> names() const { return {names_.data(), count_}; }

  /// Raises Error if the value is not one of the enumerators.
  constexpr std::string_view name_of(Enum value) const {
    const auto index = static_cast<std::size_t>(value);
    if (index >= count_) fail_unknown_value(kind_, static_cast<long long>(value));
    return names_[index];
  }

  /// Raises Error that lists the names.
  constexpr Enum value_of(std::string_view name) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (names_[i] == name) return static_cast<Enum>(i);
    }
    fail_unknown_name(kind_, name, names());
  }

 private:
  static constexpr std::size_t kMost = 24;

  std::string_view kind_;
  std::array<std::string_view, kMost> names_;
  std::size_t count_ = 0;
};

namespace detail {
struct NoNames {};
}  // namespace detail

/// Specialized for each enumeration that has names.
template <typename Enum>
inline constexpr detail::NoNames kEnumNames = {};

template <typename Enum>
constexpr std::string_view enum_name(Enum value) {
  return kEnumNames<Enum>.name_of(value);
}

template <typename Enum>
constexpr Enum enum_from_name(std::string_view name) {
  return kEnumNames<Enum>.value_of(name);
}

/// All names, in the order of the values.
template <typename Enum>
constexpr std::span<const std::string_view> enum_names() {
  return kEnumNames<Enum>.names();
}

/// "red or green", for messages.
template <typename Enum>
std::string enum_choices() {
  return listed(enum_names<Enum>());
}

}  // namespace tessera
