// The layers of the models: plain structs of Parameters with a call operator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/module.h"
#include "autograd/operations.h"
#include "runtime/context.h"

namespace tessera {

/// The heads in the result of the layer with this weight, on this rank.
std::int64_t own_heads(const Parameter& weight);

/// y = x W + b; see WeightLayout for how `<name>.weight` is stored.
struct Linear final : Module {
  Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs, bool with_bias,
         WeightLayout layout, Initializer weight_initializer, const LayerCut& cut = {});

  /// With `residual`, residual + y: the end of a branch of the residual stream.
  Variable operator()(const Variable& x, const Variable& residual = {}) const {
    return linear(x, weight, bias, layout, residual);
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  WeightLayout layout;
  Parameter weight;
  Parameter bias;  // undefined without bias
};

/// Linear layers of one input as one product (autograd/joined_parameters.h). The weights, and the
/// biases, are listed one after the other, so that a strategy makes them neighbours. They may be cut by
/// their outputs.
struct JoinedLinear final : Module {
  struct Part {
    std::string name;  // its weight is `<name>.weight`
    std::int64_t outputs;
    std::int64_t pieces;  // that stay whole: heads, or channels
    std::string_view piece = "channel";
    std::int64_t uses = 1;  // of a piece, by ranks that may share it
  };
  JoinedLinear(const std::vector<Part>& parts, std::int64_t inputs, bool with_bias,
               Initializer weight_initializer);

  /// x [..., inputs] to [..., sum of the outputs]: the parts' results side by side.
  Variable operator()(const Variable& x) const { return linear(x, weights, biases); }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  JoinedParameters weights;
  JoinedParameters biases;  // undefined without biases
};

struct Embedding final : Module {
  /// The row `padding_id` starts with zeros and gets no gradient from lookups.
  Embedding(const std::string& name, std::int64_t rows, std::int64_t width, Initializer initializer,
            Divided divided = Divided::nothing,
            std::optional<std::int64_t> padding_id = std::nullopt);

  Variable operator()(const Tensor& ids) const { return embedding(ids, weight, padding_id); }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  std::optional<std::int64_t> padding_id;
  Parameter weight;  // [rows, width]
};

struct LayerNorm final : Module {
  LayerNorm(const std::string& name, std::int64_t width, float epsilon);

  Variable operator()(const Variable& x) const { return layer_norm(x, weight, bias, epsilon); }
  /// The sum x + branch and its norm.
  SumAndNorm operator()(const Variable& x, Variable branch) const {
    return add_layer_norm(x, std::move(branch), weight, bias, epsilon);
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  Parameter weight;
  Parameter bias;
  float epsilon;
};

struct RmsNorm final : Module {
  /// `offset` is added to the weight, which starts as 1 - offset.
  RmsNorm(const std::string& name, std::int64_t width, float epsilon, float offset = 0.0f);

  /// x [..., width].
  Variable operator()(const Variable& x) const { return rms_norm(x, weight, epsilon, offset); }
  /// The sum x + branch and its norm.
  SumAndNorm operator()(const Variable& x, Variable branch) const {
    return add_rms_norm(x, std::move(branch), weight, epsilon, offset);
  }
  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override;

  Parameter weight;
  float epsilon, offset;
};

struct Dropout {
  std::string site;  // names the place in the model
  float probability = 0.0f;
  /// A parameter of the layer before, which knows the rows that this rank has of the result.
  Parameter behind;

  /// Active in training only. The mask is addressed by (seed, site, step, micro-batch), so a
  /// recomputed forward pass drops the same elements.
  Variable operator()(Variable x, bool training) const;
  /// Does it change anything?
  bool acts(bool training) const { return training && probability > 0.0f; }
};

}  // namespace tessera
