// The weights of a model with those of its adapters added.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "models/language_model.h"

namespace tessera {

class AdapterMerge {
 public:
  /// Gives the model the adapters of a folder of PEFT.
  AdapterMerge(const std::filesystem::path& folder, LanguageModel& model);

  /// Elements [first, first + n) of weight + scaling B A, computed in f32, as a tensor on the host like `stored`, which has
  /// the weight's n elements. `stored` itself if the weight has no adapter.
  Tensor merged(const Parameter& weight, const Tensor& stored, std::int64_t first) const;

 private:
  std::map<std::string, Tensor> factors_;
};

}  // namespace tessera
