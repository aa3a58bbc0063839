// Writing a folder of torch.distributed.checkpoint (dcp_folder.h), as one rank does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/file_calls.h"
#include "runtime/large_file.h"
#include "runtime/shape.h"

namespace tessera {

/// The keys of nested dictionaries that lead to a value: {"optimizer", "state.norm.weight.exp_avg"}.
using DcpPath = std::vector<std::string>;

class DcpWriter {
 public:
  /// Writes into an existing folder without a checkpoint.
  DcpWriter(FileCalls& calls, const std::filesystem::path& folder);

  /// A whole tensor; large ones are cut into chunks of rows of at most kChunkBytes.
  void add_tensor(const DcpPath& path, DType dtype, const Shape& shape,
                  std::span<const std::byte> elements);
  /// A value by the opcodes that make it (tools/pickle/writer.h).
  void add_value(const DcpPath& path, const std::string& pickled_value);
  /// Writes the metadata, without which the folder is no checkpoint. The last call.
  void finish();

  static constexpr std::int64_t kChunkBytes = std::int64_t{1} << 30;

 private:
  /// Appends an archive's texts, and where they are to the metadata.
  void store(const std::string& index, const std::vector<std::span<const std::byte>>& texts);
  void add_to_metadata(const DcpPath& path, const std::string& name, const std::string& value);

  FileCalls& calls_;
  std::filesystem::path folder_;
  LargeFile file_;
  std::int64_t bytes_ = 0;
  /// Keys and values of the metadata's dictionaries, pickled.
  std::vector<std::string> values_, paths_, places_;
};

}  // namespace tessera
