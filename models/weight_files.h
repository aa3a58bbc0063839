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
  /// The tensors of a parameter as files usually hold them, on the host. End to end, their elements
  /// are the parameter's. Tensors of 8 bits (fp8_form.h) become f32. The parameters must have passed check_holds.
  NamedTensors find(const Parameter& parameter) const;
  /// A tensor that is no parameter; none if the files do not have it.
  std::optional<Tensor> find(const std::string& name) const;

  /// A number that tells models apart: a hash of the tensors' names, dtypes and shapes, and of the first and last
  /// 4 KiB of each. Training changes all of them.
  std::uint64_t fingerprint() const;
  /// The number of blocks that the tensors' names tell of.
  std::int64_t layers() const;

 private:
  /// The tensor that the files hold under this name. It becomes f32 if it has 8 bits.
  Tensor stored(const std::string& name) const;
  /// The name under which the files hold a tensor; none if they do not.
  std::optional<std::string> stored_name(const std::string& usual) const;
  /// The tensors that the files hold or should hold for a parameter: itself or its parts.
  std::vector<StoredTensor> expected(const Parameter& parameter) const;

  std::filesystem::path folder_;
  TensorNames names_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> where_;
};

}  // namespace tessera
