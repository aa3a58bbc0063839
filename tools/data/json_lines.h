// The lines of a .jsonl file.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tessera {

/// Calls take(value, place) for every line that is not empty; `place` is "data.jsonl:12". Raises Error
/// that begins with the place if a line is no JSON.
void for_each_json_line(
    const std::filesystem::path& file,
    const std::function<void(const nlohmann::json& value, const std::string& place)>& take);

}  // namespace tessera
