// Typed, checked access to the objects of a tokenizer.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tessera {

/// Refers to a JSON object. Every error names the object and the key: "normalizer: 'content' is 3;
/// expected text".
class Fields {
 public:
  /// Raises Error unless `value` is an object.
  Fields(const nlohmann::json& value, std::string name);

  const std::string& name() const { return name_; }
  /// The value; null if the key is missing.
  const nlohmann::json& at(const char* key) const;
  /// Whether the value is missing, null, or empty text, list or object.
  bool is_absent(const char* key) const;
  /// Raises Error if it is not text.
  std::string text(const char* key) const;
  /// `fallback` if the key is missing or null.
  std::string text(const char* key, const std::string& fallback) const;
  bool flag(const char* key, bool fallback) const;
  /// A whole number from 0 to `most`.
  std::int64_t whole(const char* key, std::int64_t most) const;
  /// The object of a key. Raises Error if the value is not an object.
  Fields object(const char* key) const;

 private:
  const nlohmann::json& value_;
  std::string name_;
};

}  // namespace tessera
