// The script from_parquet.py, as text in the program. CMake writes the definition.
#pragma once

#include <string_view>

namespace tessera {

extern const std::string_view kFromParquetPy;

}  // namespace tessera
