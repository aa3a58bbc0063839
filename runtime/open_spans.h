// The spans that are open on a thread: the place of the code that runs.
#pragma once

#include <string_view>
#include <vector>

namespace tessera {

/// The names of this thread's open spans (runtime/profiler.h), the outermost first. They are valid until
/// the spans end.
std::vector<std::string_view> open_spans();

}  // namespace tessera
