// ConfigReader: typed, checked access to the values of a config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/json.h"

namespace tessera {

/// Every error names the key: "config.json: 'n_layer' is \"many\"; expected a whole number".
class ConfigReader {
 public:
  /// Refers to `config`, a JSON object.
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  /// A whole number of at most 63 bits. The key must be there.
  std::int64_t whole(const char* key) const;
  /// A number; `fallback` if the key is missing or null.
  double number(const char* key, double fallback) const;
  /// A text; `fallback` if the key is missing or null.
  std::string text(const char* key, const std::string& fallback) const;
  /// Raises Error if the key is there with another value.
  void require(const char* key, bool expected) const;

 private:
  /// The value, or null.
  const nlohmann::json* find(const char* key) const;

  const nlohmann::json& config_;
};

}  // namespace tessera
