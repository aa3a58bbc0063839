// ConfigReader: typed, checked access to the values of a config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/json.h"

namespace tessera {

/// Every error names the key: "config.json: 'n_layer' is \"many\"; expected a whole number".
class ConfigReader {
 public:
  /// Refers to `config`, a JSON object.
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  /// Whether the key is there with a value that is not null.
  bool has(const char* key) const { return find(key) != nullptr; }
  /// A whole number of at most 63 bits. The key must be there.
  std::int64_t whole(const char* key) const;
  /// The same; `fallback` if the key is missing or null.
  std::int64_t whole(const char* key, std::int64_t fallback) const;
  /// A number; `fallback` if the key is missing or null.
  double number(const char* key, double fallback) const;
  /// True or false; `fallback` if the key is missing or null.
  bool flag(const char* key, bool fallback) const;
  /// Whole numbers of at most 63 bits; none if the key is missing or null.
  std::vector<std::int64_t> wholes(const char* key) const;
  /// Numbers; none if the key is missing or null.
  std::vector<double> numbers(const char* key) const;
  /// The object under a key; none if the key is missing or null. Errors in it name both keys.
  std::optional<ConfigReader> object(const char* key) const;
  /// A text; `fallback` if the key is missing or null.
  std::string text(const char* key, const std::string& fallback) const;
  /// Raises Error if the key is there with another value.
  void require(const char* key, bool expected) const;

 private:
  ConfigReader(const nlohmann::json& config, std::string prefix)
      : config_(config), prefix_(std::move(prefix)) {}

  /// The value, or null.
  const nlohmann::json* find(const char* key) const;
  [[noreturn]] void fail_on(const char* key, const nlohmann::json& value,
                            std::string_view expected) const;

  const nlohmann::json& config_;
  std::string prefix_;  // "rope_scaling." in a nested object
};

}  // namespace tessera
