// An observer sees the operations of its thread, with all of their tensors.
#include "kernels/observer.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels/add/op.h"
#include "kernels/attention/op.h"
#include "kernels/columns/op.h"
#include "kernels/gradient_norm/op.h"
#include "kernels/grouped_matmul/op.h"
#include "kernels/linear/op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

/// "before add 3", "after add 3".
class Recorder final : public OperationObserver {
 public:
  void before(std::string_view operation, std::span<const Tensor> arguments) override {
    lines.push_back("before " + std::string(operation) + " " + std::to_string(arguments.size()));
    seen.assign(arguments.begin(), arguments.end());
  }
  void after(std::string_view operation, std::span<const Tensor> arguments) override {
    lines.push_back("after " + std::string(operation) + " " + std::to_string(arguments.size()));
  }
  std::vector<std::string> lines;
  std::vector<Tensor> seen;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("an observer sees an operation before and after it, outputs first", "[cpu]") {
  const test::Rank rank;
  const Tensor a = test::normal_tensor({4}, DType::f32, "a"), y = Tensor::zeros({4}, DType::f32);
  Recorder recorder;
  add(y, a, a);
  {
    const ObserverScope scope(recorder);
    add(y, a, a);
    std::thread other([&] {
      const test::Rank its_own;
      add(test::normal_tensor({4}, DType::f32, "y"), test::normal_tensor({4}, DType::f32, "a"),
          test::normal_tensor({4}, DType::f32, "b"));
    });
    other.join();
  }
  add(y, a, a);
  CHECK(recorder.lines == Lines{"before add 3", "after add 3"});
  REQUIRE(recorder.seen.size() == 3);
  CHECK(recorder.seen[0].raw() == y.raw());
  CHECK(recorder.seen[1].raw() == a.raw());
  CHECK(operation_observer() == nullptr);
}

TEST_CASE("an observer sees lists of tensors, and parts of tensors", "[cpu]") {
  const test::Rank rank;
  Recorder recorder;
  const ObserverScope scope(recorder);
  const Tensor a = test::normal_tensor({2, 8}, DType::f32, "a");
  sum_of_squares(GradientNorm::empty(), std::vector{a, a, a});
  CHECK(recorder.seen.size() == 4);  // with the words
  copy_columns(Tensor::zeros({2, 4}, DType::f32), first_half(a));
  REQUIRE(recorder.seen.size() == 2);
  CHECK(recorder.seen[1].raw() == a.raw());
  const Tensor qkv = test::normal_tensor({1, 2, 12}, DType::f32, "qkv");
  const Tensor o = Tensor::zeros({1, 2, 4}, DType::f32);
  attention_forward(heads_of(o, 0, 1, 4), Tensor::zeros({1, 1, 2}, DType::f32),
                    heads_of(qkv, 0, 1, 4), heads_of(qkv, 4, 1, 4), heads_of(qkv, 8, 1, 4), 0.5f);
  REQUIRE(recorder.seen.size() == 5);  // without first keys
  CHECK(recorder.seen[0].raw() == o.raw());
}

TEST_CASE("a linear layer is one operation on the CPU", "[cpu]") {
  const test::Rank rank;
  const Tensor x = test::normal_tensor({3, 4}, DType::f32, "x"),
               weight = test::normal_tensor({4, 6}, DType::f32, "weight");
  const Tensor y = Tensor::zeros({3, 6}, DType::f32), gradient = Tensor::zeros({4, 6}, DType::f32);
  Recorder recorder;
  const ObserverScope scope(recorder);
  linear_forward(y, x, weight, Transpose::no, Tensor());
  linear_backward_weight(gradient, Tensor(), x, y, Transpose::no, Accumulate::no, Accumulate::no);
  CHECK(recorder.lines == Lines{"before linear_forward 3", "after linear_forward 3",
                                "before linear_backward_weight 3",
                                "after linear_backward_weight 3"});
}

// Kernels of experts on a GPU take 16 bits and aligned rows. Of other products the parts are seen, too.
TEST_CASE("a gated product of experts is seen on every path") {
  const test::Rank rank;
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 2, 5}, {3});
  for (const std::int64_t out : {64, 6}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = test::normal_tensor({5, 16}, dtype, "x"),
                   weight = test::normal_tensor({2, 16, out}, dtype, "weight");
      Recorder recorder;
      const ObserverScope scope(recorder);
      grouped_matmul_swiglu(Tensor::empty({5, out / 2}, dtype), Tensor::empty({5, out}, dtype), x,
                            weight, offsets);
      REQUIRE(recorder.lines.size() >= 2);
      CHECK(recorder.lines.front() == "before grouped_matmul_swiglu 5");
      CHECK(recorder.lines.back() == "after grouped_matmul_swiglu 5");
    }
  }
}

}  // namespace tessera
