#include "models/layers.h"

#include "runtime/step_values.h"

namespace tessera {

Linear::Linear(const std::string& name, std::int64_t inputs, std::int64_t outputs, bool with_bias,
               WeightLayout layout, Initializer weight_initializer)
    : layout(layout),
      weight(name + ".weight",
             layout == WeightLayout::out_in ? Shape{outputs, inputs} : Shape{inputs, outputs},
             weight_initializer) {
  if (with_bias) bias = Parameter(name + ".bias", {outputs}, Initializer::zeros());
}

void Linear::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
  if (bias.defined()) visit(bias);
}

namespace {

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
    : weights(joined(
          parts,
          [&](const Part& part) {
            return Parameter(part.name + ".weight", {part.outputs, inputs}, weight_initializer);
          })),
      biases(joined(parts, [&](const Part& part) {
        if (!with_bias) return Parameter();
        return Parameter(part.name + ".bias", {part.outputs}, Initializer::zeros());
      })) {}

void JoinedLinear::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Parameter& weight : weights.parts()) visit(weight);
  if (!biases.defined()) return;
  for (const Parameter& bias : biases.parts()) visit(bias);
}

Embedding::Embedding(const std::string& name, std::int64_t rows, std::int64_t width,
                     Initializer initializer, std::optional<std::int64_t> padding_id)
    : padding_id(padding_id),
      weight(name + ".weight", {rows, width},
             {.kind = initializer.kind, .value = initializer.value, .zero_row = padding_id}) {}

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

RmsNorm::RmsNorm(const std::string& name, std::int64_t width, float epsilon)
    : weight(name + ".weight", {width}, Initializer::ones()), epsilon(epsilon) {}

void RmsNorm::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  visit(weight);
}

Variable Dropout::operator()(Variable x, bool training) const {
  if (!acts(training)) return x;
  const RandomPosition& at = context().random();
  const RandomStream random(at.seed, site, at.step, at.micro_batch);
  return dropout(std::move(x), probability,
                 stream_of_step(random, [at, site = site](const StepNumbers& numbers) {
                   return RandomStream(at.seed, site, numbers.step, at.micro_batch);
                 }));
}

}  // namespace tessera
