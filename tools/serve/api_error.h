// The errors of the API: a message with an HTTP status, in OpenAI's form.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/error.h"

namespace tessera {

class ApiError : public Error {
 public:
  /// `code` is a word for programs, or empty.
  ApiError(int status, const std::string& message, std::string code = {})
      : Error(message), status_(status), code_(std::move(code)) {}

  int status() const { return status_; }
  /// {"error": {"message": ..., "type": ..., "param": null, "code": ...}}
  std::string json() const;

 private:
  int status_;
  std::string code_;
};

/// Raises an ApiError of status 400 unless `condition` holds.
template <typename... Args>
void check_request(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) throw ApiError(400, fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace tessera
