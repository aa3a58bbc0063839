#include "tools/serve/api_error.h"

#include <nlohmann/json.hpp>

#include "models/tokenizers/utf8.h"

namespace tessera {

std::string ApiError::json() const {
  using Json = nlohmann::ordered_json;
  const char* type = "invalid_request_error";
  if (status_ == 429) type = "rate_limit_error";
  if (status_ >= 500) type = "server_error";
  const Json code = code_.empty() ? Json() : Json(code_);
  const Json error = {
      {"message", repaired_utf8(what())}, {"type", type}, {"param", nullptr}, {"code", code}};
  return Json{{"error", error}}.dump();
}

}  // namespace tessera
