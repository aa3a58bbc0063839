#include "models/layers.h"

#include "autograd/operations/shared_pieces.h"

namespace tessera {

Linear::Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs, bool with_bias,
               WeightLayout layout, Initializer weight_initializer, const LayerCut& cut)
    : layout(layout),
      weight(name + ".weight",
             layout == WeightLayout::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs},
             weight_initializer) {
  if (with_bias) bias = Parameter(name + ".bias", {outputs}, Initializer::zeros());
  const bool by_outputs = cut.divided == Divided::outputs || cut.divided == Divided::vocabulary;
  const bool out_first = layout == WeightLayout::out_in;
  const auto in_dimension = [&](int dimension) -> Cut {
    return {cut.divided, dimension, cut.groups, cut.pieces, cut.piece, cut.uses};
  };
  weight.set_cut(in_dimension(by_outputs == out_first ? 0 : 1));
  if (with_bias && by_outputs) bias.set_cut(in_dimension(0));
}

std::int64_t own_heads(const Parameter& weight) {
  const HeldPieces held = held_pieces_of(weight);
  return held.pieces * held.copies;
}

void Linear::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
  if (bias.defined()) visit(bias);
}

namespace {

/// The parameter of a part, which ranks may share out by its outputs.
Parameter cut(Parameter parameter, const JoinedLinear::Part& part) {
  parameter.set_cut({Divided::outputs, 0, 1, part.pieces, part.piece, part.uses});
  return parameter;
}

/// make(part) for every part.
template <typename F>
JoinedParameters joined(const std::vector<JoinedLinear::Part>& parts, const F& make) {
  std::vector<Parameter> parameters;
  for (const JoinedLinear::Part& part : parts) parameters.push_back(make(part));
  return JoinedParameters(std::move(parameters));
}

}  // namespace

JoinedLinear::JoinedLinear(const std::vector<Part>& parts, std::int64_t inputs, bool with_bias,
                           Initializer weight_initializer)
    : weights(joined(parts,
                     [&](const Part& part) {
                       return cut(Parameter(part.name + ".weight", {part.outputs, inputs},
                                            weight_initializer),
                                  part);
                     })),
      biases(joined(parts, [&](const Part& part) {
        if (!with_bias) return Parameter();
        return cut(Parameter(part.name + ".bias", {part.outputs}, Initializer::zeros()), part);
      })) {}

void JoinedLinear::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Parameter& weight : weights.parts()) visit(weight);
  if (!biases.defined()) return;
  for (const Parameter& bias : biases.parts()) visit(bias);
}

Embedding::Embedding(const std::string& name, std::int64_t rows, std::int64_t width,
                     Initializer initializer, Divided divided,
                     std::optional<std::int64_t> padding_id)
    : padding_id(padding_id),
      weight(name + ".weight", {rows, width},
             {.kind = initializer.kind, .value = initializer.value, .zero_row = padding_id}) {
  weight.set_cut({.divided = divided, .pieces = rows, .piece = "token"});
}

void Embedding::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
}

LayerNorm::LayerNorm(const std::string& name, std::int64_t width, float epsilon)
    : weight(name + ".weight", {width}, Initializer::ones()),
      bias(name + ".bias", {width}, Initializer::zeros()),
      epsilon(epsilon) {}

void LayerNorm::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
  visit(bias);
}

RmsNorm::RmsNorm(const std::string& name, std::int64_t width, float epsilon, float offset)
    : weight(name + ".weight", {width}, Initializer::constant(1.0 - offset)),
      epsilon(epsilon),
      offset(offset) {}

void RmsNorm::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
}

Variable Dropout::operator()(Variable x, bool training) const {
  if (!acts(training)) return x;
  const TensorAxis* const axis = behind.defined() ? behind.tensor_axis().get() : nullptr;
  const std::int64_t first = axis == nullptr ? 0 : axis->first_row() * x.shape()[-1];
  return dropout_at(std::move(x), probability, site, first);
}

}  // namespace tessera
