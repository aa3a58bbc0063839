// Short programs that the book quotes, with the numbers that it gives for them.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "autograd/operations.h"
#include "kernels/matmul/op.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::OwnedParameter;

namespace {

std::int64_t live_activations() {
  return context().allocator().account()[Category::activations].current;
}

}  // namespace

TEST_CASE("book: a product into a tensor, and another one added to it") {
  const test::Rank rank;
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Tensor w = Tensor::from(std::vector<float>{1, 0, 2, 1}, {2, 2});
  const Tensor y = Tensor::empty({2, 2}, DType::f32);
  matmul(y, x, w);  // y = x w: 5 2 11 4
  CHECK(y.to_vector<float>() == std::vector<float>{5, 2, 11, 4});
  matmul(y, x, w, Transpose::no, Transpose::yes, Accumulate::yes);  // y += x w^T: 6 6 14 14
  CHECK(y.to_vector<float>() == std::vector<float>{6, 6, 14, 14});
}

TEST_CASE("book: the smallest backward pass") {
  const test::Rank rank;
  const Variable x = Variable::leaf(Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  const Variable y = add(scale(x, 2.0), x);                     // y = 2 x + x
  backward(y, Tensor::from(std::vector<float>{1, 1, 1}, {3}));  // seed: d loss / d y
  x.gradient().to_vector<float>();                              // {3, 3, 3}
  CHECK(x.gradient().to_vector<float>() == std::vector<float>{3, 3, 3});
}

// The sizes are those of the CPU's kernels: on a GPU some operations take workspace.
TEST_CASE("book: the bytes of two linear layers and a loss", "[cpu]") {
  const test::Rank rank;
  const OwnedParameter owned_w1("w1", {200, 50}, 0.1, DType::f32);
  const OwnedParameter owned_b1("b1", {200}, 0.1, DType::f32);
  const OwnedParameter owned_w2("w2", {10, 200}, 0.1, DType::f32);
  const OwnedParameter owned_b2("b2", {10}, 0.1, DType::f32);
  const Parameter &w1 = owned_w1.parameter, &b1 = owned_b1.parameter;
  const Parameter &w2 = owned_w2.parameter, &b2 = owned_b2.parameter;
  const Tensor x = test::normal_tensor({100, 50}, DType::f32, "x");
  const Tensor targets = Tensor::from(std::vector<std::int32_t>(100, 7), {100});

  const std::int64_t before = live_activations();
  std::vector<std::int64_t> live;
  const auto note = [&] { live.push_back(live_activations() - before); };
  const Variable result = [&] {
    const Variable h = linear(Variable(x), w1, b1);  // [100, 200]
    note();
    const Variable a = gelu(h);  // [100, 200]
    note();
    const Variable l = linear(a, w2, b2);  // [100, 10]
    note();
    const Variable loss = cross_entropy(l, targets);  // [1]
    note();
    return loss;
  }();
  note();
  CHECK(live == std::vector<std::int64_t>{80'000, 160'000, 164'000, 164'404, 164'404});

  context().allocator().reset_peaks();
  backward(result);
  const MemoryAccount account = context().allocator().account();
  CHECK(account[Category::activations].peak - before == 244'004);
  CHECK(account[Category::activations].current - before == 4);  // the loss
}

}  // namespace tessera
