// The manifest of a checkpoint: which slice of which tensor lies where.
//
// A checkpoint is a folder step-000010. Each rank has written one file with its slices, and
// manifest.json describes them all:
//
//   {"checksum": "5a3c91f0",                          CRC-32C of everything after this line
//   "step": 10, "healthy": true, "state": {...},
//   "tensors": {"transformer.wte.weight":
//       {"dtype": "f32", "shape": [100, 16],
//        "slices": [{"file": "rank-00000.safetensors", "offset": 480, "begin": 0, "end": 800}, ...]},
//    "transformer.wte.weight.m": ...},
//   "files": {"rank-00000.safetensors": {"bytes": 6880, "crc32c": ["09f4cc41", ...]}, ...}}
//
// A tensor is cut at flat elements: its slices lie end to end and cover it. Columns of a matrix are many
// slices at equal distances, next to each other in the file. They are one entry, with "runs", their number,
// and "stride", the elements from one to the next. `crc32c` has a checksum
// for every block of 1 MiB of a file. So a reader of a few slices verifies all that it reads. The
// manifest is written last; without it a folder is no checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "sharding/share.h"

namespace tessera {

struct CheckpointSlice {
  std::string file;
  /// The byte of the file at which the slice begins.
  std::int64_t offset = 0;
  /// Flat elements of the tensor; at least one.
  ElementRange elements = {};
};

struct CheckpointTensor {
  DType dtype = DType::f32;
  /// The whole tensor's.
  Shape shape;
  /// In the order of elements.
  std::vector<CheckpointSlice> slices = {};
};

struct CheckpointFile {
  std::int64_t bytes = 0;
  /// CRC-32C of every block; the last block may be short.
  std::vector<std::uint32_t> checksums = {};
};

struct CheckpointManifest {
  static constexpr const char* kFileName = "manifest.json";
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

  std::int64_t step = 0;
  /// Whether the step's loss and gradient norm were finite.
  bool healthy = true;
  /// A JSON object of the program that saved: everything but tensors.
  std::string state = "{}";
  std::map<std::string, CheckpointTensor> tensors = {};
  std::map<std::string, CheckpointFile> files = {};

  /// Adds the tensors and files of another rank's manifest. Raises Error if a tensor has another
  /// dtype or shape there, or if both have a file of one name.
  void add(const CheckpointManifest& part);
};

/// The text of manifest.json.
std::string to_json(const CheckpointManifest& manifest);

/// Reads that text. Raises Error if a byte of it was changed, if an entry is missing or of another
/// type, or if a slice does not lie in its file.
CheckpointManifest parse_manifest(std::string_view text);

/// Raises Error, naming the tensor, if slices overlap or leave a gap.
void check_complete(const CheckpointManifest& manifest);

/// The complete manifest in a folder. Errors name the file.
CheckpointManifest read_checkpoint_manifest(const std::filesystem::path& folder);

}  // namespace tessera
