// Keys by their names, and their values from text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/config/keys.h"

namespace tessera {

/// Advice after an unknown name.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// Raises Error if there is no key of this name: it names `place` ("run.yaml:12") and the nearest key.
const Key& find_key(const std::vector<Key>& keys, const std::string& name,
                    const std::string& place);

/// Stores the value that `text` spells. Raises Error, with `place` and the expected values, if it
/// spells none.
void read_key(const Key& key, const std::string& text, const std::string& place);

}  // namespace tessera
