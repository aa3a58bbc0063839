// Folders of PyTorch's torch.distributed.checkpoint (DCP).
//
//   .metadata         a pickle: the shape and dtype of every tensor, its chunks, and where each chunk is
//   __R_i.distcp      the archives (torch_archive.h) of chunks and of other values, written by rank R
//
// A chunk is a box of a tensor: FSDP2 has rows on every rank, other placements of DTensor may cut other dimensions.
// Names are those of nested dictionaries, joined by points: "optimizer.state.norm.weight.exp_avg". (PyTorch 2.4 and
// later; torch/distributed/checkpoint/metadata.py and filesystem.py.)
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "tools/checkpoint/torch_archive.h"

namespace tessera {

inline constexpr const char* kDcpMetadataFile = ".metadata";

struct DcpChunk {
  /// The box: its first element, and its sizes.
  std::vector<std::int64_t> offsets;
  Shape sizes;
  /// Its archive.
  std::string file;
  FilePart part;
};

struct DcpTensor {
  DType dtype = DType::f32;
  Shape shape;
  /// They have as many elements as the tensor.
  std::vector<DcpChunk> chunks;
};

class DcpFolder {
 public:
  /// Raises Error, with the file, if the metadata is missing, damaged or of another form.
  explicit DcpFolder(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, DcpTensor>& tensors() const { return tensors_; }
  /// The names of values that are not tensors.
  const std::vector<std::string>& values() const { return values_; }

  /// A whole tensor in its stored dtype. One chunk more is in memory meanwhile. Raises Error, with the
  /// file and the tensor, if the folder does not have it, or if it is damaged.
  std::vector<std::byte> read(const std::string& name) const;

 private:
  std::filesystem::path path_;
  std::map<std::string, DcpTensor> tensors_;
  std::vector<std::string> values_;
};

}  // namespace tessera
