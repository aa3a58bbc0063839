// JsonEntries: typed, checked access to the JSON of manifests, samples and machine files.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera {

/// A value as a message shows it.
std::string shown(const nlohmann::json& value);

/// 16 digits. As text, because many JSON readers round numbers of 64 bits.
std::string hexadecimal(std::uint64_t value);

/// Refers to a JSON object. Every error names the key: "vocab_size is \"many\"; expected ...".
class JsonEntries {
 public:
  /// Raises Error unless the value is an object. `place` comes before the keys: "links[0]".
  explicit JsonEntries(const nlohmann::json& object, std::string place = {});

  /// The key with its place: "links[0]: latency_us".
  std::string name_of(const char* key) const;
  bool has(const char* key) const;
  /// These raise Error if the key is missing.
  const nlohmann::json& at(const char* key) const;
  JsonEntries object(const char* key) const;
  /// The objects of a list.
  std::vector<JsonEntries> objects(const char* key) const;
  bool flag(const char* key) const;
  /// Above 0; or not below, if `zero`.
  double number(const char* key, bool zero = false) const;
  std::string text(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t least = 0,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  /// The number of a text of 16 digits, as hexadecimal() writes it.
  std::uint64_t checksum(const char* key) const;

 private:
  /// Raises Error unless `holds`: "latency_us is -1; expected ...".
  void expect(bool holds, const char* key, const std::string& expected) const;

  const nlohmann::json& object_;
  std::string place_;
};

}  // namespace tessera
