// The safetensors format: named tensors in one file.
//
// Layout (github.com/huggingface/safetensors, "Format"): 8 bytes little-endian N; N bytes of JSON
// {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {..}};
// then the data. Offsets count from the data's start, must not overlap and must leave no hole.
//
// The reader checks sizes, offsets, shapes, dtypes and the JSON itself before it uses them. A bad
// file raises Error with path, tensor and reason. Supported dtypes: F32, BF16, F16, F64, I32, I64,
// U8, F8_E4M3, F8_E5M2.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "runtime/tensor.h"

namespace tessera {

struct TensorInfo {
  DType dtype = DType::f32;
  Shape shape;
  /// Bytes [begin, end) within the data section.
  std::size_t begin = 0;
  std::size_t end = 0;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// A view of the mapped file: read-only host memory, not copied. Rows [begin, end) by
  /// Tensor::slice touch only their pages. Data at a file offset that does not fit the dtype's
  /// alignment is copied. Raises Error if the file has no such tensor.
  Tensor tensor(const std::string& name) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::size_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Writes tensors of any device in the given order, atomically. The data section starts 8-byte
/// aligned. Raises Error on a repeated name or an unwritable path.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Names, dtypes and shapes of tensors to be written. `begin` and `end` are ignored.
using TensorInfos = std::vector<std::pair<std::string, TensorInfo>>;

/// The bytes before the data of these tensors, which follow in this order without gaps: the length and
/// the JSON, padded with spaces so that the data starts 8-byte aligned. Raises Error on a repeated name.
std::string safetensors_header(const TensorInfos& infos,
                               const std::map<std::string, std::string>& metadata = {});

/// The same for tensors that are not in memory at the same time. `produce` passes them, in the order
/// of `infos`, to the function that it receives. Raises Error if a tensor differs from its info.
void write_safetensors(
    const std::filesystem::path& path, const TensorInfos& infos,
    const std::map<std::string, std::string>& metadata,
    const std::function<void(const std::function<void(const Tensor&)>&)>& produce);

}  // namespace tessera
