// The lines of an input of the kind .jsonl.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/data/input_stream.h"

namespace tessera {

/// Calls take(value, place) for every line that is not empty; `place` is "data.jsonl:12". Raises Error
/// that begins with the place if a line is no JSON; but a line that is not UTF-8 is handed to `left_out`, if
/// that is not null.
void for_each_json_line(
    InputStream& file,
    const std::function<void(const nlohmann::json& value, const std::string& place)>& take,
    const std::function<void(const std::string& place)>& left_out);

}  // namespace tessera
