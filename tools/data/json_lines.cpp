#include "tools/data/json_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

void for_each_json_line(
    InputStream& file,
    const std::function<void(const nlohmann::json& value, const std::string& place)>& take,
    const std::function<void(const std::string& place)>& left_out) {
  std::string line;
  for (std::int64_t number = 1; file.next_line(line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string place = fmt::format("{}:{}", file.path().string(), number);
    std::optional<nlohmann::json> value;
    try {
      value = parse_json(line);
    } catch (const Error& error) {
      if (!left_out || is_valid_utf8(line)) fail("{}: {}", place, error.what());
    }
    value ? take(*value, place) : left_out(place);
  }
}

}  // namespace tessera
