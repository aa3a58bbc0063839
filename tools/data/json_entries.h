// JsonEntries: typed, checked access to the JSON that prepare writes.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tessera {

/// A value as a message shows it.
std::string shown(const nlohmann::json& value);

/// 16 digits. As text, because many JSON readers round numbers of 64 bits.
std::string hexadecimal(std::uint64_t value);

/// Refers to a JSON object. Every error names the key: "vocab_size is \"many\"; expected ...".
class JsonEntries {
 public:
  /// Raises Error unless the value is an object.
  explicit JsonEntries(const nlohmann::json& object);

  /// Raises Error if the key is missing.
  const nlohmann::json& at(const char* key) const;
  std::string text(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t least = 0,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  /// The number of a text of 16 digits, as hexadecimal() writes it.
  std::uint64_t checksum(const char* key) const;

 private:
  const nlohmann::json& object_;
};

}  // namespace tessera
