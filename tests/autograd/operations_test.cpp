// Differentiable operations against finite differences in f64. Those of matrix products are in
// linear_test.cpp.
#include "autograd/operations.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/rms_norm/op.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::normal_tensor;
using test::OwnedParameter;

TEST_CASE("layer_norm and rms_norm: gradients", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7});
  OwnedParameter bias("bias", {7});
  check_gradients({leaf({2, 3, 7})}, {&weight, &bias}, [&](const Inputs& x) {
    return layer_norm(x[0], weight.parameter, bias.parameter, 1e-5f);
  });
  check_gradients({leaf({2, 3, 7})}, {&weight},
                  [&](const Inputs& x) { return rms_norm(x[0], weight.parameter, 1e-5f); });
  check_gradients({leaf({2, 3, 7})}, {&weight},
                  [&](const Inputs& x) { return rms_norm(x[0], weight.parameter, 1e-5f, 1.0f); });
  check_gradients({leaf({2, 3, 7})}, {}, [](const Inputs& x) { return rms_norm(x[0], 1e-5f); });
}

TEST_CASE("rms_norm without a weight has the bits of one with a weight of ones") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor x = test::normal_tensor({5, 24}, dtype, "x");
    const Tensor y = Tensor::empty({5, 24}, dtype), rstd = Tensor::empty({5}, DType::f32);
    const Tensor ones = test::tensor_of(std::vector<double>(24, 1.0), {24}, dtype);
    rms_norm_forward(y, rstd, x, ones, 1e-5f);
    CHECK(test::same_bits(rms_norm(Variable(x), 1e-5f).data(), y));
  }
}

TEST_CASE("add_layer_norm and add_rms_norm: gradients, whichever results are used", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7});
  OwnedParameter bias("bias", {7});
  const auto check = [&](auto use) {
    const std::vector<Tensor> leaves = {leaf({2, 3, 7}, "x"), leaf({2, 3, 7}, "branch")};
    check_gradients(leaves, {&weight, &bias}, [&](const Inputs& x) {
      return use(x[0],
                 add_layer_norm(x[0], scale(x[1], 0.7), weight.parameter, bias.parameter, 1e-5f));
    });
    check_gradients(leaves, {&weight}, [&](const Inputs& x) {
      return use(x[0], add_rms_norm(x[0], x[1], weight.parameter, 1e-5f));
    });
    check_gradients(leaves, {&weight}, [&](const Inputs& x) {
      return use(x[0], add_rms_norm(x[0], x[1], weight.parameter, 1e-5f, 1.0f));
    });
  };
  check([](const Variable&, const SumAndNorm& r) { return r.norm; });
  check([](const Variable&, const SumAndNorm& r) { return add(r.sum, gelu(r.norm)); });
  check([](const Variable& x, const SumAndNorm& r) { return add(gelu(r.norm), add(r.sum, x)); });
}

TEST_CASE("add_layer_norm writes the sum over a temporary, and over nothing else", "[cpu]") {
  const test::Rank rank;
  const Tensor ones = Tensor::full({4}, DType::f64, 1.0), zeros = Tensor::zeros({4}, DType::f64);
  OwnedParameter weight("weight", {4}), bias("bias", {4});
  weight.data.copy_from(ones);
  bias.data.copy_from(zeros);
  const auto sum_of = [&](Variable branch) {
    const Variable x(normal_tensor({3, 4}, DType::f64, "x"));
    return add_layer_norm(x, std::move(branch), weight.parameter, bias.parameter, 1e-5f).sum;
  };
  const Tensor values = normal_tensor({3, 4}, DType::f64, "branch");
  Variable branch(values.clone());
  const auto* place = branch.data().raw();
  const Variable sum = sum_of(branch);
  CHECK(sum.data().raw() != place);
  CHECK(test::same_bits(branch.data(), values));
  const Variable over = sum_of(std::move(branch));
  CHECK(over.data().raw() == place);
  CHECK(test::same_bits(over.data(), sum.data()));

  const Tensor kept = values.clone();
  sum_of(Variable(kept));
  CHECK(test::same_bits(kept, values));
}

TEST_CASE("gelu, add, scale, reshape, dropout and cast: gradients", "[cpu]") {
  const test::Rank rank;
  const auto check = [](auto function, const std::vector<Tensor>& leaves) {
    check_gradients(leaves, {}, function);
  };
  check([](const Inputs& x) { return gelu(x[0]); }, {leaf({3, 5})});
  check([](const Inputs& x) { return add(x[0], x[1]); }, {leaf({3, 5}, "a"), leaf({3, 5}, "b")});
  check([](const Inputs& x) { return add(x[0], x[0]); }, {leaf({3, 5})});
  check([](const Inputs& x) { return scale(x[0], -1.75); }, {leaf({3, 5})});
  check([](const Inputs& x) { return gelu(reshape(x[0], {15})); }, {leaf({3, 5})});
  check([](const Inputs& x) { return dropout(x[0], 0.4f, RandomStream(5, "site", 2, 1)); },
        {leaf({3, 50})});
}

TEST_CASE("swiglu: gradients of two inputs, of one that packs both, and of one used twice",
          "[cpu]") {
  const test::Rank rank;
  check_gradients({leaf({2, 3, 5}, "gate"), leaf({2, 3, 5}, "up")}, {},
                  [](const Inputs& x) { return swiglu(x[0], x[1]); });
  check_gradients({leaf({2, 3, 10})}, {}, [](const Inputs& x) { return swiglu(x[0]); });
  check_gradients({leaf({2, 3, 10})}, {}, [](const Inputs& x) { return swiglu(x[0], Gate::gelu); });
  check_gradients({leaf({3, 5})}, {}, [](const Inputs& x) { return swiglu(x[0], x[0]); });
  // swiglu saves a temporary, and backward writes over it.
  check_gradients({leaf({3, 10})}, {}, [](const Inputs& x) { return swiglu(scale(x[0], 2.0)); });
  check_gradients({leaf({3, 5})}, {},
                  [](const Inputs& x) { return swiglu(scale(x[0], 2.0), scale(x[0], 3.0)); });
}

TEST_CASE("swiglu: backward writes over its saved tensors if it is their only owner") {
  const test::Rank rank;
  const auto gradient_is_saved = [](bool keep) {
    const Variable x = Variable::leaf(normal_tensor({3, 10}, DType::f32, "leaf"));
    Variable gate_up = scale(x, 2.0);
    const std::byte* const saved = gate_up.data().raw();
    const Variable y = swiglu(gate_up);
    if (!keep) gate_up = Variable();
    backward(y, normal_tensor({3, 5}, DType::f32, "seed"));
    return x.gradient().raw() == saved;
  };
  CHECK(gradient_is_saved(false));
  CHECK_FALSE(gradient_is_saved(true));
}

TEST_CASE("rope: gradients in both conventions, with positions that count or are given", "[cpu]") {
  const test::Rank rank;
  const Tensor each = Tensor::from(std::vector<std::int32_t>{0, 1, 0, 3, 2, 1}, {2, 3});
  for (const RopePairs pairs : {RopePairs::half_split, RopePairs::interleaved}) {
    const RopeTable table = rope_table(9, rope_frequencies(6, 100.0), pairs, DType::f64);
    for (const RopePositions& positions : {RopePositions{.first = 5}, RopePositions{2, each}}) {
      const auto check = [&](auto function) { check_gradients({leaf({2, 3, 20})}, {}, function); };
      check([&](const Inputs& x) { return rope(x[0], 3, 6, table, positions); });
      check([&](const Inputs& x) { return rope(scale(x[0], 2.0), 3, 6, table, positions); });
      check([&](const Inputs& x) { return add(rope(x[0], 3, 6, table, positions), x[0]); });
    }
  }
}

TEST_CASE("rope works in place on a temporary only") {
  const test::Rank rank;
  const RopeTable table = rope_table(3, rope_frequencies(4, 100.0), RopePairs::half_split);
  const Variable x = Variable::leaf(normal_tensor({1, 3, 4}, DType::f32, "leaf"));
  const Tensor before = x.data().clone();
  Variable kept = scale(x, 1.0);
  const std::byte* const memory = kept.data().raw();
  CHECK(rope(x, 1, 4, table).data().raw() != x.data().raw());
  CHECK(rope(kept, 1, 4, table).data().raw() != memory);
  CHECK(test::same_bits(kept.data(), before));
  const Tensor handle = kept.data();
  CHECK(rope(Variable(handle), 1, 4, table).data().raw() != memory);
  CHECK(test::same_bits(kept.data(), before));
  CHECK(test::same_bits(x.data(), before));
}

TEST_CASE("rope turns a variable that was moved in where it lies") {
  const test::Rank rank;
  const RopeTable table = rope_table(3, rope_frequencies(4, 100.0), RopePairs::half_split);
  Variable x = scale(Variable(normal_tensor({1, 3, 4}, DType::f32, "leaf")), 1.0);
  const std::byte* const memory = x.data().raw();
  CHECK(rope(std::move(x), 1, 4, table).data().raw() == memory);
}

TEST_CASE("cast: the gradient comes back in the input's dtype", "[cpu]") {
  const test::Rank rank;
  const Variable x = Variable::leaf(Tensor::from(std::vector<float>{1.0f, -2.5f}, {2}));
  const Variable y = cast(x, DType::f64);
  backward(y, Tensor::from(std::vector<double>{0.5, 3.0}, {2}));
  CHECK(x.gradient().to_vector<float>() == std::vector<float>{0.5f, 3.0f});
}

TEST_CASE("attention: gradients with plain and grouped heads", "[cpu]") {
  const test::Rank rank;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    const std::int64_t channels = (4 + 2 * kv_heads) * 3;
    check_gradients({leaf({2, 5, channels})}, {},
                    [&](const Inputs& x) { return attention(x[0], 4, kv_heads); });
  }
}

TEST_CASE("attention: gradients with a first key per query", "[cpu]") {
  const test::Rank rank;
  const Tensor first_key =
      Tensor::from(std::vector<std::int32_t>{0, 0, 2, 2, 2, 0, 1, 1, 3, 4}, {2, 5});
  check_gradients({leaf({2, 5, (4 + 2 * 2) * 3})}, {},
                  [&](const Inputs& x) { return attention(x[0], 4, 2, first_key); });
  check_gradients({leaf({2, 5, 12}, "q"), leaf({2, 5, 6}, "k"), leaf({2, 5, 6}, "v")}, {},
                  [&](const Inputs& x) { return attention(x[0], x[1], x[2], 4, 2, first_key); });
}

TEST_CASE("attention: gradients with separate queries, keys and values", "[cpu]") {
  const test::Rank rank;
  for (const std::int64_t kv_heads : {4, 2, 1}) {
    check_gradients(
        {leaf({2, 5, 12}, "q"), leaf({2, 5, 3 * kv_heads}, "k"), leaf({2, 5, 3 * kv_heads}, "v")},
        {}, [&](const Inputs& x) { return attention(x[0], x[1], x[2], 4, kv_heads); });
  }
  const Variable q(leaf({2, 5, 12})), k(leaf({2, 5, 6})), short_k(leaf({2, 4, 6}));
  REQUIRE_THROWS_WITH(attention(q, short_k, short_k, 4, 2),
                      Catch::Contains("k is f64 [2, 4, 6]") &&
                          Catch::Contains("expected [B, T, 4 D], [B, T, 2 D]"));
  REQUIRE_THROWS_WITH(attention(q, k, k, 5, 2), Catch::Contains("[B, T, 5 D]"));
}

TEST_CASE("attention: gradients with rotary positions", "[cpu]") {
  const test::Rank rank;
  const Rotary rotary{rope_table(9, rope_frequencies(4, 100.0), RopePairs::half_split, DType::f64),
                      {.first = 3}};
  check_gradients({leaf({2, 5, (4 + 2 * 2) * 4})}, {},
                  [&](const Inputs& x) { return attention(x[0], 4, 2, Tensor(), rotary); });
}

TEST_CASE("attention: gradients with norms of queries and keys, of which one may be frozen",
          "[cpu]") {
  const test::Rank rank;
  OwnedParameter q_norm("q_norm", {4}), k_norm("k_norm", {4});
  const Rotary rotary{rope_table(9, rope_frequencies(4, 100.0), RopePairs::half_split, DType::f64),
                      {.first = 3}};
  const QkNorm norm{JoinedParameters({q_norm.parameter, k_norm.parameter}), 1e-5f};
  const auto check = [&](const std::vector<OwnedParameter*>& trained) {
    check_gradients({leaf({2, 5, (4 + 2 * 2) * 4})}, trained,
                    [&](const Inputs& x) { return attention(x[0], 4, 2, Tensor(), rotary, norm); });
  };
  check({&q_norm, &k_norm});
  const QkNorm with_offset{norm.weights, 1e-5f, /*offset=*/1.0f};
  check_gradients({leaf({2, 5, (4 + 2 * 2) * 4})}, {&q_norm, &k_norm}, [&](const Inputs& x) {
    return attention(x[0], 4, 2, Tensor(), rotary, with_offset, /*scale=*/0.3);
  });
  q_norm.parameter.set_trainable(false);
  check({&k_norm});
  k_norm.parameter.set_trainable(false);
  check({});
}

TEST_CASE("attention with rotary positions has the bits of rope before it, and leaves its input",
          "[cpu]") {
  const test::Rank rank;
  const RopeTable table = rope_table(5, rope_frequencies(4, 100.0), RopePairs::half_split);
  const Tensor qkv = normal_tensor({2, 5, 32}, DType::f32, "qkv"), kept = qkv.clone();
  const Variable x = Variable::leaf(qkv), y = Variable::leaf(qkv);
  const Variable together = attention(x, 4, 2, Tensor(), {table});
  const Variable apart = attention(rope(y, 6, 4, table), 4, 2);
  REQUIRE(test::same_bits(together.data(), apart.data()));
  REQUIRE(test::same_bits(qkv, kept));
  const Tensor seed = normal_tensor({2, 5, 16}, DType::f32, "seed");
  backward(together, seed.clone());
  backward(apart, seed.clone());
  REQUIRE(test::same_bits(x.gradient(), y.gradient()));
}

TEST_CASE("cross_entropy: gradients of the mean over valid targets", "[cpu]") {
  const test::Rank rank;
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0, kIgnoreIndex, 6}, {4});
  check_gradients({leaf({4, 7})}, {},
                  [&](const Inputs& x) { return cross_entropy(x[0], targets); });
}

TEST_CASE("linear_cross_entropy: gradients, with chunks that do not divide the tokens", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7, 3});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0, kIgnoreIndex, 6, 1}, {5});
  for (const std::int64_t chunk : {1, 2, 3, 5, 64}) {
    check_gradients({leaf({5, 3})}, {&weight}, [&](const Inputs& x) {
      return linear_cross_entropy(x[0], weight.parameter, targets, 0.25, kIgnoreIndex, chunk);
    });
  }
}

TEST_CASE("both cross-entropies: gradients with several weighted targets for each token", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7, 3});
  const Targets targets{
      Tensor::from(
          std::vector<std::int32_t>{2, 0, 6, kIgnoreIndex, kIgnoreIndex, kIgnoreIndex, 5, 2},
          {2, 2, 2}),
      Tensor::from(std::vector<float>{0.75f, 0.25f, 1.0f, 0.0f, 0.0f, 0.0f, 0.5f, 0.5f},
                   {2, 2, 2})};
  check_gradients({leaf({4, 7})}, {},
                  [&](const Inputs& x) { return cross_entropy(x[0], targets); });
  for (const std::int64_t chunk : {1, 3, 64}) {
    check_gradients({leaf({2, 2, 3})}, {&weight}, [&](const Inputs& x) {
      return linear_cross_entropy(x[0], weight.parameter, targets, 0.25, kIgnoreIndex, chunk);
    });
  }
}

TEST_CASE("constants and frozen parameters give a constant, one trained parameter does not",
          "[cpu]") {
  const test::Rank rank;
  OwnedParameter matrix("matrix", {7, 3}), row("row", {3}), bias("bias", {3}), outputs("b", {7});
  const Variable x(leaf({2, 3}));
  const Tensor ids = Tensor::from(std::vector<std::int32_t>{2, 0}, {2});
  const auto check = [](std::vector<OwnedParameter*> used, const auto& operation) {
    for (OwnedParameter* owned : used) owned->parameter.set_trainable(false);
    CHECK_FALSE(operation().requires_gradient());
    for (OwnedParameter* owned : used) {
      owned->parameter.set_trainable(true);
      CHECK(operation().requires_gradient());
      owned->parameter.set_trainable(false);
    }
  };
  check({&matrix, &outputs}, [&] { return linear(x, matrix.parameter, outputs.parameter); });
  check({&matrix}, [&] { return embedding(ids, matrix.parameter); });
  check({&row, &bias}, [&] { return layer_norm(x, row.parameter, bias.parameter, 1e-5f); });
  check({&row}, [&] { return rms_norm(x, row.parameter, 1e-5f); });
  OwnedParameter q_norm("q_norm", {2}), k_norm("k_norm", {2});
  const Variable heads(leaf({1, 2, 6}));
  const Rotary rotary{rope_table(2, rope_frequencies(2, 100.0), RopePairs::half_split, DType::f64)};
  check({&q_norm, &k_norm}, [&] {
    const QkNorm norm{JoinedParameters({q_norm.parameter, k_norm.parameter}), 1e-5f};
    return attention(heads, 1, 1, Tensor(), rotary, norm);
  });
  check({&matrix}, [&] { return linear_cross_entropy(x, matrix.parameter, ids, 0.5); });
}

TEST_CASE("linear_cross_entropy refuses to be differentiated further", "[cpu]") {
  const test::Rank rank;
  OwnedParameter weight("weight", {7, 3});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>{2, 0}, {2});
  const Variable x = Variable::leaf(leaf({2, 3}));
  const Variable loss = scale(linear_cross_entropy(x, weight.parameter, targets, 0.5), 2.0);
  REQUIRE_THROWS_WITH(backward(loss), Catch::Contains("loss_scale"));
}

}  // namespace tessera
