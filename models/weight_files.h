// WeightFiles: the stored tensors of a model folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
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

  /// Raises one Error that lists every parameter that is missing, of another shape or not
  /// floating-point, and every tensor that is neither one of the parameters nor ignored by the model
  /// family.
  void check_holds(const std::vector<Parameter>& parameters) const;
  /// The stored tensor of a parameter, on the host. The parameters must have passed check_holds.
  Tensor find(const Parameter& parameter) const;

  /// The number of blocks that the tensors' names tell of.
  std::int64_t layers() const;

 private:
  /// The name under which the files hold a parameter; none if they do not.
  std::optional<std::string> stored_name(const Parameter& parameter) const;

  std::filesystem::path folder_;
  TensorNames names_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> where_;
};

}  // namespace tessera
