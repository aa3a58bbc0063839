// Pickle: Python's format for values, written from JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera {

/// `value` as Python's pickle.load reads it: objects become dicts, lists lists, null None. Protocol 2 of
/// PEP 307. Whole numbers have at most 64 bits, as in JSON.
std::string to_pickle(const nlohmann::ordered_json& value);

}  // namespace tessera
