// Experts with inner channels that tensor-parallel ranks share out: for every number of ranks the
// bits of one rank, and the values of experts that no ranks divide. Ranks are threads.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/experts.h"
#include "runtime/context.h"
#include "sharding/plan/held_part.h"
#include "sharding/strategy/tensor_ranks.h"
#include "tests/sharding/ranks.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::normal_tensor;
using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

constexpr int kParts = 8;
constexpr std::int64_t C = 12, E = 5, k = 2, F = 48;

/// A stacked parameter, with windows open on a rank's part of `whole` and on its gradient.
struct Stacked {
  Parameter parameter;
  HeldPart held;
  Tensor gradient;

  Stacked(const std::string& name, const Tensor& whole, const Cut& cut,
          const std::shared_ptr<TensorAxis>& axis)
      : parameter(name, whole.shape(), Initializer::zeros()) {
    parameter.set_stacked();
    parameter.set_cut(cut);
    const CutSizes sizes = {.tensors = axis == nullptr ? 1 : axis->ranks(),
                            .sum_parts = axis == nullptr ? 1 : axis->sum_parts()};
    held = held_part(parameter, sizes, /*expert=*/0, axis == nullptr ? 0 : axis->rank());
    const Values from = to_doubles(whole);
    Values part(static_cast<std::size_t>(held.count));
    held.elements.for_each_run(held.count,
                               [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
                                 std::copy_n(from.begin() + element, count, part.begin() + offset);
                               });
    if (axis != nullptr) parameter.share_out(axis, held.shape);
    parameter.open(test::tensor_of(part, held.shape, whole.dtype()));
    gradient = Tensor::zeros(held.shape, statistics_dtype(whole.dtype()));
    parameter.open_gradient(gradient);
  }

  /// Writes this rank's gradient to its elements of that of the whole parameter.
  void write_gradient(Values& whole) const {
    const Values part = to_doubles(gradient);
    held.elements.for_each_run(held.count,
                               [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
                                 std::copy_n(part.begin() + offset, count, whole.begin() + element);
                               });
  }
};

/// The layer's inputs, of all ranks.
struct Inputs {
  std::int64_t rows;
  ExpertOptions options;
  Tensor x, logits, residual, dy, gate_up, down;

  Inputs(std::int64_t rows, const ExpertOptions& options, DType dtype)
      : rows(rows),
        options(options),
        x(normal_tensor({rows, C}, dtype, "x")),
        logits(normal_tensor({rows, E}, dtype, "logits")),
        residual(normal_tensor({rows, C}, dtype, "residual")),
        dy(normal_tensor({rows, C}, dtype, "dy")),
        gate_up(normal_tensor(out_in() ? Shape{E, 2 * F, C} : Shape{E, C, 2 * F}, dtype, "up")),
        down(normal_tensor(out_in() ? Shape{E, C, F} : Shape{E, F, C}, dtype, "down")) {}

  bool out_in() const { return options.layout == WeightLayout::out_in; }
  Cut cut_of_gate_up() const {
    return {.divided = Divided::outputs, .dimension = out_in() ? 1 : 2, .groups = 2, .pieces = F};
  }
  Cut cut_of_down() const {
    return {.divided = Divided::inputs, .dimension = out_in() ? 2 : 1, .pieces = F};
  }
};

/// The layer's results, of all rows and elements.
struct Results {
  Values y, dx, dlogits, dgate_up, ddown;
  bool operator==(const Results&) const = default;
};

void run(const Inputs& in, const std::shared_ptr<TensorAxis>& axis, Results& results) {
  const std::int64_t first = axis == nullptr ? 0 : axis->first_row();
  const std::int64_t own = axis == nullptr ? in.rows : axis->own_rows();
  const auto rows_of = [&](const Tensor& all) { return all.slice(first, first + own).clone(); };
  const Stacked gate_up("gate_up", in.gate_up, in.cut_of_gate_up(), axis);
  const Stacked down("down", in.down, in.cut_of_down(), axis);
  const Variable x = Variable::leaf(rows_of(in.x));
  const Variable logits = Variable::leaf(in.logits.clone());
  const Variable residual(rows_of(in.residual));
  const Routing routing =
      route(logits, {.experts_per_token = k, .weights = RouterWeights::softmax, .bias = {}});
  const Variable y = experts(x, routing, gate_up.parameter, down.parameter, in.options, residual);
  backward(y, rows_of(in.dy));
  const bool writes_rows = axis == nullptr || axis->shares_rows() || axis->rank() == 0;
  const auto write_rows = [&](Values& all, const Tensor& of_rank) {
    if (!writes_rows) return;
    const Values values = to_doubles(of_rank);
    std::copy(values.begin(), values.end(), all.begin() + first * C);
  };
  write_rows(results.y, y.data());
  write_rows(results.dx, x.gradient());
  gate_up.write_gradient(results.dgate_up);
  down.write_gradient(results.ddown);
  if (axis == nullptr || axis->rank() == 0) results.dlogits = to_doubles(logits.gradient());
}

/// With `ranks` ranks; 0: without any that share out channels.
Results results_of(const Inputs& in, int ranks) {
  const auto sized = [](std::int64_t count) { return Values(static_cast<std::size_t>(count)); };
  Results results{.y = sized(in.rows * C),
                  .dx = sized(in.rows * C),
                  .dlogits = {},
                  .dgate_up = sized(in.gate_up.numel()),
                  .ddown = sized(in.down.numel())};
  if (ranks == 0) {
    run(in, nullptr, results);
    return results;
  }
  current_stream().synchronize();  // it has written the inputs
  test::on_ranks(ranks, [&](Communicator& world) {
    const auto axis = std::make_shared<TensorRanks>(ranks == 1 ? nullptr : &world, kParts);
    axis->begin(1, in.rows);
    run(in, axis, results);
  });
  return results;
}

}  // namespace

TEST_CASE("divided experts: results and gradients have the bits of one rank, in both families") {
  const test::Rank rank;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    for (const WeighedInput weighed : {WeighedInput::down, WeighedInput::gate_up}) {
      for (const auto& [dtype, bound] : {std::pair(DType::f32, 5e-6), {DType::bf16, 0x1p-6}}) {
        for (const std::int64_t rows : {16, 13}) {  // the parts divide 16 rows
          CAPTURE(layout == WeightLayout::out_in, weighed == WeighedInput::down, name_of(dtype),
                  rows);
          const Inputs in(rows, {layout, weighed}, dtype);
          const Results whole = results_of(in, 0), one = results_of(in, 1);
          CHECK(relative_error(one.y, whole.y) <= bound);
          CHECK(relative_error(one.dx, whole.dx) <= bound);
          CHECK(relative_error(one.dlogits, whole.dlogits) <= bound);
          CHECK(relative_error(one.dgate_up, whole.dgate_up) <= bound);
          CHECK(relative_error(one.ddown, whole.ddown) <= bound);
          for (const int ranks : {2, 4, 8}) {
            CAPTURE(ranks);
            CHECK((results_of(in, ranks) == one));
          }
        }
      }
    }
  }
}

}  // namespace tessera
