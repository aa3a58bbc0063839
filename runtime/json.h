// Reading JSON from files that may be damaged or hostile.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tessera {

/// Parses a JSON text with at most `deepest` levels of objects and lists, so that code may walk the
/// value recursively. Raises Error if the text is not JSON, is nested deeper, has a zero byte, or
/// gives an object the same key twice (the parser would keep the last one silently).
/// Messages are sentences about `subject`: "it is nested more than 64 levels deep".
nlohmann::json parse_json(std::string_view text, int deepest = 64, std::string_view subject = "it");

/// Parses a JSON file. Errors begin with the path.
nlohmann::json read_json_file(const std::filesystem::path& path);

/// Text from a file, in quotes, as a message may show it: at most 60 bytes, control characters
/// escaped, invalid UTF-8 replaced.
std::string excerpt(std::string_view text);

}  // namespace tessera
