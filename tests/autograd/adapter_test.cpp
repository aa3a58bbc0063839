// Adapters: linear layers, feed-forward layers and experts with low-rank additions to their weights.
#include "autograd/adapter.h"

#include <catch2/catch.hpp>
#include <functional>

#include "autograd/checkpoint.h"
#include "autograd/experts.h"
#include "autograd/module.h"
#include "runtime/context.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::normal_tensor;
using test::OwnedParameter;
using test::relative_error;

namespace {

/// A frozen weight, with an adapter of this rank if it is not 0.
struct Adapted {
  OwnedParameter weight, a, b;

  Adapted(const std::string& name, const Shape& shape, WeightLayout layout, std::int64_t rank,
          double scaling = 0.75, float dropout = 0.0f)
      : weight(name, shape, 0.7),
        a(name + ".a", factor(shape, rank, inputs(shape, layout))),
        b(name + ".b", factor(shape, outputs(shape, layout), rank)) {
    weight.parameter.set_trainable(false);
    if (rank == 0) return;
    weight.parameter.set_adapter(
        std::make_shared<Adapter>(Adapter{a.parameter, b.parameter, scaling, dropout}));
  }

  std::vector<OwnedParameter*> factors() { return {&a, &b}; }

 private:
  static std::int64_t inputs(const Shape& shape, WeightLayout layout) {
    return shape[layout == WeightLayout::out_in ? -1 : -2];
  }
  static std::int64_t outputs(const Shape& shape, WeightLayout layout) {
    return shape[layout == WeightLayout::out_in ? -2 : -1];
  }
  /// A stack of experts has a stack of factors.
  static Shape factor(const Shape& shape, std::int64_t rows, std::int64_t columns) {
    return shape.rank() == 3 ? Shape{shape[0], rows, columns} : Shape{rows, columns};
  }
};

/// W + scaling B A as a weight without an adapter.
Parameter merged(const Adapted& layer, WeightLayout layout, const Tensor& memory) {
  const double scaling = layer.weight.parameter.adapter()->scaling;
  memory.copy_from(layer.weight.data);
  const std::int64_t rank = layer.a.data.size(0);
  const std::int64_t in = layer.a.data.size(1), out = layer.b.data.size(0);
  double* const w = memory.data<double>();
  const double *const a = layer.a.data.data<double>(), *const b = layer.b.data.data<double>();
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < rank; ++r) sum += b[o * rank + r] * a[r * in + i];
      w[layout == WeightLayout::out_in ? o * in + i : i * out + o] += scaling * sum;
    }
  }
  const Parameter parameter("merged", memory.shape(), Initializer::zeros());
  parameter.open(memory);
  return parameter;
}

}  // namespace

TEST_CASE("adapters: a layer computes with W + scaling B A, and the factors have gradients",
          "[cpu]") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const Shape shape = layout == WeightLayout::out_in ? Shape{5, 3} : Shape{3, 5};
    Adapted layer("layer", shape, layout, /*rank=*/2);
    OwnedParameter bias("bias", {5});
    bias.parameter.set_trainable(false);
    const auto function = [&](const Inputs& x) {
      return linear(x[0], layer.weight.parameter, bias.parameter, layout, x[1]);
    };
    check_gradients({leaf({2, 4, 3}, "x"), leaf({2, 4, 5}, "residual")}, layer.factors(), function);

    const Inputs inputs = {Variable(leaf({2, 4, 3}, "x")), Variable(leaf({2, 4, 5}, "residual"))};
    const Tensor memory = Tensor::empty(shape, DType::f64);
    const Variable expected =
        linear(inputs[0], merged(layer, layout, memory), bias.parameter, layout, inputs[1]);
    CHECK(relative_error(function(inputs).data().to_vector<double>(),
                         expected.data().to_vector<double>()) < 1e-14);
  }
}

TEST_CASE("adapters: those of joined weights add to their own columns, and some have none",
          "[cpu]") {
  const test::Rank rank;
  const auto out_in = WeightLayout::out_in;
  for (unsigned adapted = 1; adapted < 8; ++adapted) {
    CAPTURE(adapted);
    const auto rank_of = [&](unsigned part) { return (adapted >> part & 1u) != 0 ? 2 : 0; };
    Adapted q("q", {4, 3}, out_in, rank_of(0)), k("k", {2, 3}, out_in, rank_of(1)),
        v("v", {1, 3}, out_in, rank_of(2));
    const JoinedParameters weights({q.weight.parameter, k.weight.parameter, v.weight.parameter});
    std::vector<OwnedParameter*> factors;
    for (Adapted* part : {&q, &k, &v}) {
      if (part->weight.parameter.adapter() == nullptr) continue;
      factors.push_back(&part->a);
      factors.push_back(&part->b);
    }
    const auto joined = [&](const Inputs& x) { return linear(x[0], weights, Parameter()); };
    check_gradients({leaf({2, 5, 3})}, factors, joined);
    // Each part alone has the same columns.
    const Inputs inputs = {Variable(leaf({2, 5, 3}))};
    const std::vector<double> all = joined(inputs).data().to_vector<double>();
    std::int64_t first = 0;
    for (const Adapted* part : {&q, &k, &v}) {
      const Tensor alone = linear(inputs[0], part->weight.parameter, Parameter()).data();
      const std::vector<double> values = alone.to_vector<double>();
      for (std::int64_t i = 0; i < alone.numel(); ++i) {
        const std::int64_t outputs = alone.size(2), at = i / outputs * 7 + first + i % outputs;
        CHECK(all[static_cast<std::size_t>(at)] == Approx(values[static_cast<std::size_t>(i)]));
      }
      first += alone.size(2);
    }
  }
}

TEST_CASE("adapters: feed-forward layers have gradients for the factors of either end", "[cpu]") {
  const test::Rank rank;
  for (const auto& [first, second] : {std::pair{2, 0}, std::pair{0, 2}, std::pair{2, 1}}) {
    CAPTURE(first, second);
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const bool out_in = layout == WeightLayout::out_in;
      Adapted fc("fc", out_in ? Shape{6, 3} : Shape{3, 6}, layout, first);
      Adapted proj("proj", out_in ? Shape{3, 6} : Shape{6, 3}, layout, second);
      std::vector<OwnedParameter*> factors;
      if (first > 0) factors = fc.factors();
      if (second > 0) factors.insert(factors.end(), {&proj.a, &proj.b});
      for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
        check_gradients({leaf({2, 3, 3})}, factors, [&](const Inputs& x) {
          return gelu_mlp(x[0], fc.weight.parameter, Parameter(), proj.weight.parameter,
                          Parameter(), layout, x[0], form);
        });
      }
    }
    Adapted gate("gate", {4, 3}, WeightLayout::out_in, first);
    Adapted up("up", {4, 3}, WeightLayout::out_in, 0);
    Adapted down("down", {3, 4}, WeightLayout::out_in, second);
    const JoinedParameters gate_up({gate.weight.parameter, up.weight.parameter});
    std::vector<OwnedParameter*> factors;
    if (first > 0) factors = gate.factors();
    if (second > 0) factors.insert(factors.end(), {&down.a, &down.b});
    check_gradients({leaf({2, 3, 3})}, factors, [&](const Inputs& x) {
      return swiglu_mlp(x[0], gate_up, Parameter(), down.weight.parameter, Parameter(), x[0]);
    });
  }
}

TEST_CASE("adapters: experts have gradients for the factors of each expert", "[cpu]") {
  const test::Rank rank;
  constexpr std::int64_t E = 4, C = 3, F = 2;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    for (const WeighedInput weighed : {WeighedInput::down, WeighedInput::gate_up}) {
      const bool out_in = layout == WeightLayout::out_in;
      Adapted gate_up("gate_up", out_in ? Shape{E, 2 * F, C} : Shape{E, C, 2 * F}, layout, 2);
      Adapted down("down", out_in ? Shape{E, C, F} : Shape{E, F, C}, layout, 1, /*scaling=*/1.0);
      check_gradients({leaf({5, C}, "x"), normal_tensor({5, E}, DType::f64, "logits", 3.0)},
                      {&gate_up.a, &gate_up.b, &down.a, &down.b}, [&](const Inputs& x) {
                        const Routing routing = route(x[1], {.experts_per_token = 2});
                        return experts(x[0], routing, gate_up.weight.parameter,
                                       down.weight.parameter, {layout, weighed}, x[0]);
                      });
    }
  }
}

TEST_CASE("adapters: dropout acts in training alone, and drops the same when it runs again",
          "[cpu]") {
  const test::Rank rank;
  context().random() = {.seed = 3, .step = 5, .micro_batch = 1};
  Adapted layer("layer", {6, 8}, WeightLayout::out_in, /*rank=*/3, 0.75, /*dropout=*/0.5f);
  const Tensor x = leaf({7, 8});
  const auto forward = [&](bool training) {
    return [&layer, training](const Variable& input) {
      const AdapterTraining scope(training);
      return linear(input, layer.weight.parameter, Parameter());
    };
  };
  const auto values = [&](bool training) {
    return forward(training)(Variable(x)).data().to_vector<double>();
  };
  CHECK_FALSE(AdapterTraining::acts());
  CHECK(values(true) == values(true));
  CHECK(values(true) != values(false));
  const std::vector<double> before = values(true);
  ++context().random().step;
  CHECK(values(true) != before);
  --context().random().step;

  const auto gradients = [&](bool recomputed) {
    layer.a.parameter.reset_gradient();
    layer.b.parameter.reset_gradient();
    const Variable input = Variable::leaf(x);
    backward(recomputed ? checkpoint(forward(true), input) : forward(true)(input), leaf({7, 6}));
    std::vector<double> all = input.gradient().to_vector<double>();
    for (const Tensor& factor : {layer.a.gradient, layer.b.gradient}) {
      const auto more = factor.to_vector<double>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("adapters: a module lists the factors A behind its own parameters, and then B") {
  struct Layers final : Module {
    Adapted q = Adapted("q", {4, 3}, WeightLayout::out_in, 2);
    Adapted k = Adapted("k", {4, 3}, WeightLayout::out_in, 0);
    Adapted v = Adapted("v", {4, 3}, WeightLayout::out_in, 2);
    void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
      for (const Adapted* layer : {&q, &k, &v}) visit(layer->weight.parameter);
    }
  };
  const test::Rank rank;
  std::string names;
  for (const Parameter& parameter : parameters_of(Layers())) {
    names += parameter.name() + (parameter.in_adapter() ? "! " : " ");
  }
  CHECK(names == "q k v q.a! v.a! q.b! v.b! ");
}

TEST_CASE(
    "uniform initial values fill the range up to their bound, and do not depend on the part that "
    "is made") {
  const test::Rank rank;
  const Parameter parameter("factor", {8, 512}, Initializer::uniform(0.25));
  const Tensor all = Tensor::empty({4096}, DType::f32);
  parameter.initialize(all, 0, /*seed=*/1);
  const std::vector<float> values = all.to_vector<float>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  CHECK(*least >= -0.25f);
  CHECK(*least < -0.249f);
  CHECK(*most < 0.25f);
  CHECK(*most > 0.249f);
  double sum = 0.0, squares = 0.0;
  for (const float value : values) sum += value, squares += value * value;
  CHECK(std::abs(sum / 4096.0) < 0.01);
  CHECK(squares / 4096.0 == Approx(0.25 * 0.25 / 3.0).epsilon(0.03));
  const Tensor part = Tensor::empty({100}, DType::f32);
  parameter.initialize(part, 1001, /*seed=*/1);
  CHECK(part.to_vector<float>() ==
        std::vector<float>(values.begin() + 1001, values.begin() + 1101));
}

}  // namespace tessera
