// Linear layers on the CPU: one product with steps has the bits of separate operations.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/bias/op.h"
#include "kernels/gelu/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "kernels/swiglu/op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Results = std::vector<Tensor>;

struct Size {
  std::int64_t N, I, O;
};

/// Single elements; the last rows and columns of a tile; few rows, in forward or for the weight;
/// several blocks and partial sums; several rounds of depth.
constexpr Size kSizes[] = {{1, 1, 1},     {5, 37, 33},   {200, 97, 131},
                           {70, 130, 20}, {130, 9, 410}, {20, 1300, 35}};

/// The portable level calls a function for every fused multiply-add, unless the build has the instruction.
constexpr std::int64_t kMostForPortable = 100'000;

Tensor zeros_like(const Tensor& x) {
  return Tensor::zeros(x.shape(), x.dtype());
}

struct Layer {
  Transpose transpose;
  Tensor x, weight, bias, dy, dweight, dbias;

  Layer(const Size& s, Transpose transpose, DType dtype)
      : transpose(transpose),
        x(test::normal_tensor({s.N, s.I}, dtype, "x")),
        weight(test::normal_tensor(transpose == Transpose::no ? Shape{s.I, s.O} : Shape{s.O, s.I},
                                   dtype, "weight", 1.0 / std::sqrt(s.I))),
        bias(test::normal_tensor({s.O}, dtype, "bias")),
        dy(test::normal_tensor({s.N, s.O}, dtype, "dy")),
        dweight(test::normal_tensor(weight.shape(), statistics_dtype(dtype), "dweight")),
        dbias(test::normal_tensor({s.O}, statistics_dtype(dtype), "dbias")) {}
};

/// Gradients of the parameters, added to those before or not.
Results backward_weight(const Layer& layer, Accumulate accumulate, bool fused) {
  const Tensor dweight = layer.dweight.clone(), dbias = layer.dbias.clone();
  if (fused) {
    linear_backward_weight(dweight, dbias, layer.x, layer.dy, layer.transpose, accumulate,
                           accumulate);
    return {dweight, dbias};
  }
  bias_backward(dbias, layer.dy, accumulate);
  const bool as_stored = layer.transpose == Transpose::no;
  matmul(dweight, as_stored ? layer.x : layer.dy, as_stored ? layer.dy : layer.x, Transpose::yes,
         Transpose::no, accumulate);
  return {dweight, dbias};
}

Results forward_and_backward_input(const Layer& layer, bool fused) {
  const auto& [transpose, x, weight, bias, dy, dweight, dbias] = layer;
  const Tensor y = zeros_like(dy), pre = zeros_like(dy), hidden = zeros_like(dy);
  const Tensor plain = zeros_like(dy), dx = zeros_like(x), sum = zeros_like(dy);
  if (fused) {
    linear_forward(y, x, weight, transpose, bias);
    linear_forward(sum, x, weight, transpose, bias, /*residual=*/dy);
    linear_gelu_forward(hidden, pre, x, weight, transpose, bias);
    linear_gelu_forward(plain, zeros_like(dy), x, weight, transpose, {});
    linear_backward_input(dx, dy, weight, transpose, x);
    return {y, pre, hidden, plain, dx, sum};
  }
  matmul(y, x, weight, Transpose::no, transpose);
  gelu_forward(plain, y);
  bias_forward(y, bias);
  gelu_forward(hidden, y);
  add(sum, y, dy);
  matmul(dx, dy, weight, Transpose::no, opposite(transpose));
  gelu_backward(dx, dx, x);
  return {y, y, hidden, plain, dx, sum};
}

/// The layer makes gate and up; its transpose makes the gradient of x, which was swiglu(before).
/// It begins with row `first` of `before`.
Results swiglu(const Layer& layer, bool fused, std::int64_t first, Gate gate = Gate::silu) {
  const auto& [transpose, x, weight, bias, dy, dweight, dbias] = layer;
  const Tensor gate_up = zeros_like(dy);
  const Tensor y = Tensor::zeros({dy.size(0), dy.size(1) / 2}, dy.dtype()), plain = zeros_like(y);
  const Tensor before = test::normal_tensor({first + x.size(0), 2 * x.size(1)}, x.dtype(), "before")
                            .slice(first, first + x.size(0));
  const Tensor dbefore = zeros_like(before), in_place = before.clone(), dx = zeros_like(x);
  if (fused) {
    linear_swiglu_forward(y, gate_up, x, weight, transpose, bias, gate);
    linear_swiglu_forward(plain, zeros_like(dy), x, weight, transpose, {}, gate);
    swiglu_linear_backward_input(dbefore, dx, dy, weight, transpose, before, gate);
    swiglu_linear_backward_input(in_place, dx, dy, weight, transpose, in_place, gate);
    return {y, gate_up, plain, dx, dbefore, in_place};
  }
  matmul(gate_up, x, weight, Transpose::no, transpose);
  swiglu_forward(plain, first_half(gate_up), second_half(gate_up), gate);
  bias_forward(gate_up, bias);
  swiglu_forward(y, first_half(gate_up), second_half(gate_up), gate);
  matmul(dx, dy, weight, Transpose::no, opposite(transpose));
  swiglu_backward(first_half(dbefore), second_half(dbefore), dx, first_half(before),
                  second_half(before), gate);
  return {y, gate_up, plain, dx, dbefore, dbefore};
}

void check_bits(const Results& found, const Results& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(test::same_bits(found[i], expected[i]));
  }
}

Results rows_of(const Results& results, std::int64_t first, std::int64_t last) {
  Results rows;
  for (const Tensor& result : results) rows.push_back(result.slice(first, last));
  return rows;
}

/// A layer with two columns of gate and up for each of `size`.
void check_swiglu(const Size& size, Transpose transpose, DType dtype, Gate gate = Gate::silu) {
  const Layer layer({size.N, size.I, 2 * size.O}, transpose, dtype);
  check_bits(swiglu(layer, true, 0, gate), swiglu(layer, false, 0, gate));
}

void check_layer(const Layer& layer) {
  check_bits(forward_and_backward_input(layer, true), forward_and_backward_input(layer, false));
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    check_bits(backward_weight(layer, accumulate, true), backward_weight(layer, accumulate, false));
  }
}

constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

}  // namespace

TEST_CASE("a linear layer has the bits of separate operations, on every instruction set", "[cpu]") {
  const test::Rank rank;
  for (const cpu::Isa isa : cpu::available_isas()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      if (dtype != DType::bf16 && isa > cpu::Isa::avx512) continue;
      matmul_options().isa = isa;
      for (const Size& s : kSizes) {
        if (isa == cpu::Isa::portable && s.N * s.I * s.O > kMostForPortable) continue;
        for (const Transpose transpose : kBoth) {
          CAPTURE(enum_name(isa), name_of(dtype), s.N, s.I, s.O, transpose == Transpose::yes);
          check_layer(Layer(s, transpose, dtype));
          check_swiglu(s, transpose, dtype);
        }
      }
    }
  }
}

// Tensor ranks multiply rows in pieces, while others travel.
TEST_CASE("a row of a linear layer has the same bits whatever rows are computed with it", "[cpu]") {
  const test::Rank rank(2);
  for (const cpu::Isa isa : cpu::available_isas()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      if (dtype != DType::bf16 && isa > cpu::Isa::avx512) continue;
      matmul_options().isa = isa;
      for (const Size& s : kSizes) {
        if (isa == cpu::Isa::portable && s.N * s.I * s.O > kMostForPortable) continue;
        for (const Transpose transpose : kBoth) {
          const Layer layer({s.N, s.I, 2 * s.O}, transpose, dtype);
          const std::int64_t first = s.N / 3, last = s.N;
          Layer rows = layer;
          rows.x = layer.x.slice(first, last);
          rows.dy = layer.dy.slice(first, last);
          CAPTURE(enum_name(isa), name_of(dtype), s.N, s.I, s.O, transpose == Transpose::yes);
          check_bits(forward_and_backward_input(rows, true),
                     rows_of(forward_and_backward_input(layer, true), first, last));
          check_bits(swiglu(rows, true, first), rows_of(swiglu(layer, true, 0), first, last));
        }
      }
    }
  }
}

TEST_CASE("a bias's gradient adds each row once, however many rounds the product takes", "[cpu]") {
  const test::Rank rank;
  // With 8-byte elements these take several rounds of depth, of rows and of columns.
  for (const auto& [s, transpose] : {std::pair{Size{1291, 700, 240}, Transpose::no},
                                     std::pair{Size{1291, 240, 700}, Transpose::yes}}) {
    const Layer layer(s, transpose, DType::f64);
    const Results found = backward_weight(layer, Accumulate::yes, true);
    const Tensor expected = layer.dbias.clone();
    bias_backward(expected, layer.dy, Accumulate::yes);
    CHECK(test::same_bits(found[1], expected));
  }
}

TEST_CASE("swiglu finds gate and up together, however many rounds the product takes", "[cpu]") {
  const test::Rank rank;
  for (const Transpose transpose : kBoth) {
    check_swiglu({200, 1500, 610}, transpose, DType::f32);  // rounds of depth and of columns
    check_swiglu({1291, 700, 130}, transpose, DType::f64);  // of rows
    check_swiglu({200, 700, 610}, transpose, DType::bf16);
    check_swiglu({70, 90, 50}, transpose, DType::f32, Gate::gelu);
    check_swiglu({70, 90, 50}, transpose, DType::bf16, Gate::gelu);
  }
}

TEST_CASE("a linear layer has the bits of separate operations where sums are rounded apart",
          "[cpu]") {
  const test::Rank rank;
  for (const auto library : {MatmulLibrary::tessera, MatmulLibrary::openblas}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Transpose transpose : kBoth) {
        matmul_options().library = library;
        CAPTURE(enum_name(library), name_of(dtype), transpose == Transpose::yes);
        check_layer(Layer({99, 4100, 20}, transpose, dtype));  // deeper than 4,096
        check_layer(Layer({100, 33, 65}, transpose, dtype));
        check_swiglu({99, 4100, 20}, transpose, dtype);
        check_swiglu({100, 33, 65}, transpose, dtype);
      }
    }
  }
}

TEST_CASE("a linear layer has the same bits for any number of threads", "[cpu]") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Transpose transpose : kBoth) {
      const test::Rank owner;  // the tensors outlive the contexts of the other ranks
      std::vector<Results> results;
      for (const int threads : {1, 2, 3, 8}) {
        const test::Rank rank(threads);
        const Layer layer({330, 110, 200}, transpose, dtype);
        results.push_back(forward_and_backward_input(layer, true));
        for (const Tensor& t : backward_weight(layer, Accumulate::yes, true)) {
          results.back().push_back(t);
        }
        for (const Tensor& t : swiglu(layer, true, 0)) results.back().push_back(t);
        check_bits(results.back(), results[0]);
      }
    }
  }
}

TEST_CASE("a dry run takes the workspace of gate and up, and of a linear layer's gradients",
          "[cpu]") {
  const auto peak = [](bool dry, const auto& run) {
    RankContext context({.device = test::device(), .threads = 2, .seed = 1, .dry = dry});
    const ContextGuard guard(context);
    run();
    CHECK(context.allocator().account()[Category::workspace].current == 0);
    return context.allocator().account()[Category::workspace].peak;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto empty = [dtype](const Shape& shape) { return Tensor::empty(shape, dtype); };
    for (const Size& s : kSizes) {
      const auto forward = [&] {
        linear_swiglu_forward(empty({s.N, s.O}), empty({s.N, 2 * s.O}), empty({s.N, s.I}),
                              empty({2 * s.O, s.I}), Transpose::yes, {});
      };
      CHECK(peak(true, forward) == peak(false, forward));
    }
    for (const Transpose transpose : kBoth) {
      const auto backward = [&] {
        const Shape shape = transpose == Transpose::no ? Shape{97, 131} : Shape{131, 97};
        linear_backward_weight(Tensor::empty(shape, DType::f32), Tensor::empty({131}, DType::f32),
                               empty({200, 97}), empty({200, 131}), transpose, Accumulate::no,
                               Accumulate::no);
      };
      CHECK(peak(true, backward) == peak(false, backward));
    }
  }
}

}  // namespace tessera
