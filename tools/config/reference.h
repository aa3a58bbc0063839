// The reference of configuration keys, for docs/configuration.md.
#pragma once

#include <string>

namespace tessera {

/// Markdown: an introduction, then one table of keys per section.
std::string configuration_reference();

}  // namespace tessera
