// Rows of Parquet and Arrow files as JSON lines.
//
// from_parquet.py reads them, a program of its own: it needs Python and pyarrow, and Tessera needs neither
// for anything else. The script is a part of this program as text.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/byte_source.h"

namespace tessera {

/// Whether a file of this name is a table: .parquet, .arrow or .feather.
bool is_table(const std::filesystem::path& file);

/// The rows of a table, one per line, with the columns that have one of `keys` as their name or inside
/// them; without keys, or with none that it has, those of text. Errors have the file and the way on.
/// Memory: a pipe's.
std::unique_ptr<ByteSource> make_table_source(const std::filesystem::path& file,
                                              const std::vector<std::string>& keys);

}  // namespace tessera
