// Reading the fields of a request, and refusing those that are not known.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace tessera {

/// Errors are ApiErrors of status 400 that name the field. A field that is null is absent.
class RequestFields {
 public:
  /// `object` outlives this. Raises ApiError if it is no object.
  explicit RequestFields(const nlohmann::json& object, std::string place = "the request");

  /// The field's value, or null.
  const nlohmann::json* find(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t least,
                                      std::int64_t most);
  std::optional<double> number(const std::string& name, double least, double most);
  bool boolean(const std::string& name);
  std::string text(const std::string& name);
  /// Refuses every value but those that ask for nothing: null, and `neutral`.
  void refuse_unless(const std::string& name, const nlohmann::json& neutral);
  void ignore(const std::string& name) { read_.insert(name); }
  /// Refuses fields that were not asked for.
  void finish() const;

 private:
  const nlohmann::json& object_;
  std::string place_;
  std::set<std::string> read_;
};

}  // namespace tessera
