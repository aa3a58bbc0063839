// A part of a matrix.
#pragma once

#include <cstdint>

namespace tessera::cpu {

/// `rows` rows from `row` on, and `columns` columns from `column` on.
struct Rectangle {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
};

}  // namespace tessera::cpu
