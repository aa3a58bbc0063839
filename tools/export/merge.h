// The weights of a model with those of its adapters added.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "models/language_model.h"
#include "models/weight_files.h"

namespace tessera {

class AdapterMerge {
 public:
  /// Gives the model the adapters of a folder of PEFT. `base`: the model's files.
  AdapterMerge(const std::filesystem::path& folder, LanguageModel& model, const WeightFiles& base);

  /// Elements [first, first + n) of weight + scaling B A, computed in f32, as a tensor on the host like
  /// `stored`, which has the weight's n elements. A packed weight has the values that it was packed to.
  /// `stored` itself if the weight has no adapter and is not packed.
  Tensor merged(const Parameter& weight, const Tensor& stored, std::int64_t first) const;

 private:
  /// Elements [first, first + count) of a packed weight, f32.
  Tensor unpacked(const Parameter& weight, std::int64_t first, std::int64_t count) const;
  /// values += elements from `first` on of scaling B A.
  void add_factors(const Tensor& values, const Parameter& weight, std::int64_t first) const;

  const WeightFiles& base_;
  std::map<std::string, Tensor> factors_;
};

}  // namespace tessera
