// WeightFiles: the stored tensors of a model folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "models/tensor_names.h"
#include "runtime/safetensors.h"

namespace tessera {

class WeightFiles {
 public:
  /// Opens model.safetensors, or the files that model.safetensors.index.json names. Raises Error if
  /// the folder has neither.
  WeightFiles(const std::filesystem::path& folder, const TensorNames& names);

  /// The stored tensor of a parameter, on the host. Raises Error if it is missing, of another shape
  /// or not floating-point.
  Tensor find(const Parameter& parameter);
  /// Raises Error if the files hold a tensor that find() has not returned and that the model family
  /// does not ignore.
  void check_all_used() const;

  /// The number of blocks that the tensors' names tell of.
  std::int64_t layers() const;

 private:
  std::filesystem::path folder_;
  TensorNames names_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> where_;
  std::set<std::string> used_;
};

}  // namespace tessera
