// The stacked linear layers of all experts: their products and gradients (autograd/experts.h).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "autograd/expert_rows.h"
#include "autograd/fp8.h"
#include "autograd/leaf_sum.h"
#include "autograd/operations.h"
#include "autograd/operations/travelling_rows.h"

namespace tessera {

/// A stack of layers, with the channels that this rank has of their cut, and their adapters. Rows [P, C] are by
/// group, and `offsets` are the groups' (ExpertRows). Rows may come from fp8_factor(), and adapters multiply them
/// expanded to bf16. Or they are tokens' rows, which all products gather, but not parts of sums.
struct ExpertLayer {
  Parameter weight;
  WeightLayout layout;

  std::int64_t inputs() const;
  std::int64_t outputs() const;
  /// Whether the weight or its adapter is trained.
  bool trains() const;

  Tensor operator()(const RoutedRows& rows, const Tensor& offsets) const;
  /// The layer's result y [P, 2F], gate and up, and swiglu(y) [P, F].
  std::pair<Tensor, Tensor> gated(const RoutedRows& rows, const Tensor& offsets) const;
  Tensor input_gradient(const RoutedRows& rows, const Tensor& offsets) const;
  /// The inputs were w swiglu(gate_up), with weights w by `places` and `slots` (dispatch/op.h). Returns them once
  /// more, [P, F]. gate_up becomes its gradient. dweights [N, k] becomes that of the weights, or [S, N, k] its parts.
  /// The weights may be undefined.
  Tensor swiglu_gradient(const Tensor& dweights, const Tensor& gate_up, const RoutedRows& rows,
                         const Tensor& offsets, const Tensor& places, const Tensor& slots,
                         const Tensor& weights) const;

  // Where ranks divide the sum, a part of it in f32 (f64). The first part has all of an adapter's.
  const SharedAxis& axis() const { return weight.tensor_axis(); }
  std::int64_t parts() const { return axis()->own_parts(); }
  Tensor part(const Factor& rows, const Tensor& offsets, std::int64_t i) const;
  Tensor input_gradient_part(const Factor& rows, const Tensor& offsets, std::int64_t i) const;

 private:
  /// The weight as a factor of products with these rows.
  Factor factor(const Factor& rows) const;
};

/// The gradients of a layer's weight or its adapter, from the pieces of this rank's tokens. There may be one for
/// each source (ExpertSums): their sum over ranks is formed later, in the tree of all sums.
class ExpertLayerGradient {
 public:
  ExpertLayerGradient(ExpertLayer layer, std::int64_t pieces);

  /// Adds that of one piece's rows.
  void add(const RoutedRows& inputs, const RoutedRows& gradients, const ExpertRows& at);

 private:
  /// Sums for each source; none if nothing is trained.
  using Sums = std::vector<LeafSum>;
  static void add_products(Sums& sums, const RoutedRows& a, const RoutedRows& b,
                           const ExpertRows& at);

  ExpertLayer layer_;
  Sums of_weight_, of_a_, of_b_;
};

}  // namespace tessera
