// The way to do work that is the fastest in the long run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera {

/// `seconds_of(way, n)` does the work `n` times by a way, without a pause, and returns the seconds that it
/// took. Every way runs for about a second, and only its second half counts: by then a GPU whose power is
/// limited has the clock that this way leaves it. A few cold runs would choose by the clock of an idle GPU.
/// Returns the way with the least time for each run, the first of them if two are equal. `ways` is at least 1.
std::size_t fastest_way(std::size_t ways,
                        const std::function<double(std::size_t way, std::int64_t n)>& seconds_of);

}  // namespace tessera
