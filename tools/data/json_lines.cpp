#include "tools/data/json_lines.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {

void for_each_json_line(
    const std::filesystem::path& file,
    const std::function<void(const nlohmann::json& value, const std::string& place)>& take) {
  std::ifstream stream(file, std::ios::binary);
  check(stream.is_open(), "cannot open {}", file.string());
  std::string line;
  for (std::int64_t number = 1; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string place = fmt::format("{}:{}", file.string(), number);
    std::optional<nlohmann::json> value;
    try {
      value = parse_json(line);
    } catch (const Error& error) {
      fail("{}: {}", place, error.what());
    }
    take(*value, place);
  }
  check(!stream.bad(), "{}: the file could not be read to its end", file.string());
}

}  // namespace tessera
