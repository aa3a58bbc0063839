// Adapter: a low-rank addition to the weight W of a linear layer (Hu et al. 2021, "LoRA").
//
//   y = x W + scaling (dropout(x) A^T) B^T        A [r, in], B [out, r]; of E experts A [E, r, in], B [E, out, r]
//
// W is usually frozen, and A and B are trained. B starts with zeros, so the addition starts as none. A weight
// has its adapter as it has its cut (autograd/cut.h): the operations ask their weights for it, and the models
// know nothing of it.
//
// Dropout acts in training only. AdapterTraining says whether a pass is one, because most operations do not
// know.
#pragma once

#include <memory>

#include "autograd/joined_parameters.h"
#include "autograd/parameter.h"

namespace tessera {

struct Adapter {
  Parameter a, b;
  double scaling = 1.0;
  /// The probability that an element of A's input is dropped; 0 for experts.
  float dropout = 0.0f;
};

/// Whether the parameter, which may be undefined, or one of the joined ones has an adapter.
bool is_adapted(const JoinedParameters& weight);

/// The weight of a layer that may have an adapter, by its cut: it maps inputs to outputs, of which tensor
/// ranks may share out one.
bool is_adaptable(const Parameter& weight);
/// The extents `in` and `out` of an adaptable weight.
struct LayerSize {
  std::int64_t inputs = 0, outputs = 0;
};
LayerSize layer_size(const Parameter& weight);
/// How it is stored.
WeightLayout weight_layout(const Parameter& weight);

/// Operations on this rank belong to training, or do not, for the scope.
class AdapterTraining {
 public:
  explicit AdapterTraining(bool training);
  ~AdapterTraining();
  AdapterTraining(const AdapterTraining&) = delete;
  AdapterTraining& operator=(const AdapterTraining&) = delete;

  /// False outside of a scope.
  static bool acts();

 private:
  bool previous_;
};

}  // namespace tessera
