#include "runtime/tensor.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;

Tensor iota(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape);
}

std::vector<std::int32_t> ints(const Tensor& tensor) {
  return tensor.to_vector<std::int32_t>();
}

}  // namespace

TEST_CASE("a default tensor is undefined") {
  const test::Rank rank;
  const Tensor none;
  REQUIRE_FALSE(none.defined());
  REQUIRE(to_string(none) == "(no tensor)");
  REQUIRE_THROWS_WITH(none.clone(), Contains("undefined tensor"));
  REQUIRE_THROWS_WITH(none.zero(), Contains("undefined tensor"));
  REQUIRE_THROWS_WITH(none.reshape({1}), Contains("undefined tensor"));
  REQUIRE_THROWS_WITH(none.slice(0, 0), Contains("(no tensor)"));
  REQUIRE_THROWS_WITH(none.to_vector<float>(), Contains("undefined tensor"));
  REQUIRE_THROWS_WITH(none.copy_from(Tensor::zeros({}, DType::f32)), Contains("(no tensor)"));
  REQUIRE_THROWS_WITH(Tensor::zeros({}, DType::f32).copy_from(none), Contains("(no tensor)"));
}

TEST_CASE("a tensor made from values holds them row by row") {
  const test::Rank rank;
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(tensor.defined());
  REQUIRE(tensor.dtype() == DType::f32);
  REQUIRE(tensor.shape() == Shape{2, 3});
  REQUIRE(tensor.size(-1) == 3);
  REQUIRE(tensor.bytes() == 24);
  REQUIRE(tensor.device() == test::device());
  REQUIRE(tensor.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  REQUIRE(to_string(tensor) == "f32 [2, 3]");
  REQUIRE_THROWS_WITH(Tensor::from(std::vector<float>{1, 2}, {3}),
                      Contains("2 values") && Contains("[3]"));
}

TEST_CASE("copying a tensor copies the handle") {
  const test::Rank rank;
  const Tensor tensor = iota({4});
  const Tensor other = tensor;
  other.slice(0, 1).copy_from(Tensor::from(std::vector<std::int32_t>{9}, {1}));
  REQUIRE(ints(tensor) == std::vector<std::int32_t>{9, 1, 2, 3});
}

TEST_CASE("reshape and slice are views of the same storage") {
  const test::Rank rank;
  const Tensor tensor = iota({4, 3});
  const Tensor flat = tensor.reshape({12});
  const Tensor rows = tensor.slice(1, 3);
  const Tensor nested = rows.slice(1, 2).reshape({3, 1, 1});
  REQUIRE(rows.shape() == Shape{2, 3});
  REQUIRE(ints(rows) == std::vector<std::int32_t>{3, 4, 5, 6, 7, 8});
  REQUIRE(ints(nested) == std::vector<std::int32_t>{6, 7, 8});
  REQUIRE(flat.storage() == tensor.storage());
  REQUIRE(nested.storage() == tensor.storage());
  nested.slice(2, 3).copy_from(Tensor::from(std::vector<std::int32_t>{-1}, {1}));
  REQUIRE(ints(flat) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, -1, 9, 10, 11});
}

TEST_CASE("a view keeps the storage alive") {
  const test::Rank rank;
  Tensor window;
  {
    const Tensor tensor = iota({100});
    window = tensor.slice(98, 100);
  }
  REQUIRE(context().allocator().account().total.current == 400);
  REQUIRE(ints(window) == std::vector<std::int32_t>{98, 99});
  window = Tensor();
  REQUIRE(context().allocator().account().total.current == 0);
}

TEST_CASE("views that do not fit are refused with the shapes") {
  const test::Rank rank;
  const Tensor tensor = iota({4, 3});
  REQUIRE_THROWS_WITH(tensor.reshape({5}), Contains("i32 [4, 3]") && Contains("[5]"));
  REQUIRE_THROWS_WITH(tensor.slice(-1, 2), Contains("[-1, 2)") && Contains("i32 [4, 3]"));
  REQUIRE_THROWS_WITH(tensor.slice(3, 2), Contains("[3, 2)"));
  REQUIRE_THROWS_WITH(tensor.slice(0, 5), Contains("[0, 5)"));
  REQUIRE_THROWS_WITH(Tensor::zeros({}, DType::f32).slice(0, 1), Contains("f32 []"));
  REQUIRE_THROWS_WITH(Tensor::view(tensor.storage(), 4, {4, 3}, DType::i32),
                      Contains("48 bytes") && Contains("byte 4"));
  REQUIRE_NOTHROW(Tensor::view(tensor.storage(), 4, {11}, DType::i32));
  REQUIRE_NOTHROW(Tensor::view(tensor.storage(), 48, {0}, DType::i32));
  REQUIRE_THROWS_WITH(Tensor::view(tensor.storage(), 49, {0}, DType::i32), Contains("byte 49"));
}

TEST_CASE("sizes that wrap around 64 bits are refused, not shortened") {
  const test::Rank rank;
  const std::int64_t wraps_to_8_bytes = (std::int64_t{1} << 62) + 2;
  REQUIRE_THROWS_WITH(Tensor::empty({wraps_to_8_bytes}, DType::f32), Contains("2^64 bytes"));
  const Tensor tensor = Tensor::zeros({2}, DType::f32);
  REQUIRE_THROWS_WITH(Tensor::view(tensor.storage(), 0, {wraps_to_8_bytes}, DType::f32),
                      Contains("2^64 bytes"));
  REQUIRE_THROWS_WITH(Tensor::view(tensor.storage(), SIZE_MAX - 3, {2}, DType::f32),
                      Contains("does not fit"));
}

TEST_CASE("zeros, zero, copy_from and clone have their documented effect") {
  const test::Rank rank;
  const Tensor tensor = iota({2, 3});
  const Tensor copy = tensor.clone();
  REQUIRE_FALSE(copy.storage() == tensor.storage());
  REQUIRE(copy.shape() == tensor.shape());
  tensor.slice(0, 1).zero();
  REQUIRE(ints(tensor) == std::vector<std::int32_t>{0, 0, 0, 3, 4, 5});
  REQUIRE(ints(copy) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  tensor.copy_from(copy.reshape({6}));  // counts must agree, shapes need not
  REQUIRE(ints(tensor) == ints(copy));
  REQUIRE(Tensor::zeros({3}, DType::f64).to_vector<double>() == std::vector<double>(3, 0.0));
  REQUIRE_THROWS_WITH(tensor.copy_from(tensor.slice(0, 1)),
                      Contains("i32 [1, 3]") && Contains("i32 [2, 3]"));
  REQUIRE_THROWS_WITH(tensor.copy_from(Tensor::zeros({6}, DType::f32)), Contains("f32 [6]"));
}

TEST_CASE("copying between overlapping views moves the old values") {
  const test::Rank rank;
  const Tensor tensor = iota({6});
  tensor.slice(1, 6).copy_from(tensor.slice(0, 5));
  REQUIRE(ints(tensor) == std::vector<std::int32_t>{0, 0, 1, 2, 3, 4});
}

TEST_CASE("reading as the wrong type is refused") {
  const test::Rank rank;
  const Tensor tensor = Tensor::zeros({2}, DType::bf16);
  REQUIRE_THROWS_WITH(tensor.data<float16>(), Contains("bf16 [2]") && Contains("f16"));
  REQUIRE_THROWS_WITH(tensor.to_vector<std::uint8_t>(), Contains("u8"));
  REQUIRE_NOTHROW(tensor.data<bfloat16>());
}

TEST_CASE("a scalar has one element and item() reads it") {
  const test::Rank rank;
  const Tensor scalar = Tensor::from(std::vector<double>{2.5}, {});
  REQUIRE(scalar.rank() == 0);
  REQUIRE(scalar.bytes() == 8);
  REQUIRE(scalar.item<double>() == 2.5);
  REQUIRE(scalar.reshape({1, 1}).item<double>() == 2.5);
  REQUIRE_THROWS_WITH(iota({2}).item<std::int32_t>(), Contains("i32 [2]"));
  REQUIRE_THROWS_WITH(iota({0}).item<std::int32_t>(), Contains("i32 [0]"));
}

TEST_CASE("tensors without elements are tensors") {
  const test::Rank rank;
  const Tensor tensor = Tensor::zeros({0, 5}, DType::f32);
  REQUIRE(tensor.defined());
  REQUIRE(tensor.bytes() == 0);
  REQUIRE(tensor.to_vector<float>().empty());
  REQUIRE(tensor.clone().shape() == Shape{0, 5});
  REQUIRE(tensor.slice(0, 0).shape() == Shape{0, 5});
  REQUIRE(tensor.reshape({3, 0}).shape() == Shape{3, 0});
  REQUIRE(Tensor::zeros({4, 0}, DType::f32).slice(1, 3).shape() == Shape{2, 0});
  REQUIRE(iota({4, 2}).slice(4, 4).shape() == Shape{0, 2});
  tensor.copy_from(Tensor::zeros({0}, DType::f32));
}

TEST_CASE("a tensor on borrowed memory is not charged and keeps its owner alive") {
  const test::Rank rank;
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor tensor =
      Tensor::view(Storage::borrow(reinterpret_cast<const std::byte*>(owner->data()), 12, owner), 4,
                   {2}, DType::f32);
  owner.reset();
  REQUIRE(tensor.to_vector<float>() == std::vector<float>{2, 3});
  REQUIRE(context().allocator().account().total.current == 0);
  tensor = Tensor();
  REQUIRE(watch.expired());
}

TEST_CASE("copies on a side stream hold their tensors until they have run") {
  const test::Rank rank;
  const Stream& side = context().side_stream("copies");
  const StreamGuard guard(side);
  const Tensor target = Tensor::zeros({1000}, DType::i32);
  Tensor source = iota({1000});
  side.set_delay([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  Tensor taken;
  side.enqueue([&] { taken = Tensor::zeros({1000}, DType::i32); });
  target.copy_from(source);
  source = Tensor();  // before the work above allocates a block of this size
  side.synchronize();
  REQUIRE(ints(target) == ints(iota({1000})));
}

TEST_CASE(
    "a tensor in host memory is read and written directly, and copied to and from the device") {
  const test::Rank rank;
  const CategoryScope category(Category::activations);
  const Tensor host = Tensor::empty_on_host({3}, DType::i32);
  REQUIRE(host.device().is_cpu());
  REQUIRE(context().host_allocator().account()[Category::activations].current == 12);
  std::iota(host.data<std::int32_t>(), host.data<std::int32_t>() + 3, 5);
  const Tensor tensor = Tensor::empty({3}, DType::i32);
  tensor.copy_from(host);
  REQUIRE(ints(tensor) == std::vector<std::int32_t>{5, 6, 7});
  const Tensor back = tensor.to_host();
  REQUIRE(back.device().is_cpu());
  REQUIRE(std::vector(back.data<std::int32_t>(), back.data<std::int32_t>() + 3) == ints(tensor));
  // A tensor on the host returns itself.
  REQUIRE(host.to_host().storage() == host.storage());
  REQUIRE((tensor.to_host().storage() == tensor.storage()) == test::device().is_cpu());
  REQUIRE_THROWS_WITH(Tensor().to_host(), Contains("undefined tensor"));
}

TEST_CASE("host memory is not handed out again while a copy from it is queued") {
  const test::Rank rank;
  const Tensor target = Tensor::zeros({100}, DType::i32);
  Tensor host = Tensor::empty_on_host({100}, DType::i32);
  std::iota(host.data<std::int32_t>(), host.data<std::int32_t>() + 100, 0);
  target.copy_from(host);
  host = Tensor();
  const Tensor next = Tensor::empty_on_host({100}, DType::i32);
  std::fill_n(next.data<std::int32_t>(), 100, -1);
  REQUIRE(ints(target) == ints(iota({100})));
}

TEST_CASE("the values that a tensor is made from may change at once, for any count") {
  const test::Rank rank;
  for (const std::size_t count : {std::size_t{10}, (std::size_t{4} << 20) / 4 + 1}) {
    std::vector<std::int32_t> values(count, 7);
    const Tensor tensor = Tensor::from(values, {static_cast<std::int64_t>(count)});
    std::fill(values.begin(), values.end(), -1);
    REQUIRE(ints(tensor) == std::vector<std::int32_t>(count, 7));
  }
}

TEST_CASE("a tensor may outlive its context") {
  Tensor tensor;
  {
    const test::Rank rank;
    tensor = iota({3});
  }
  const test::Rank later;
  REQUIRE(ints(tensor) == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("allocating without a context is an error that says what to do") {
  REQUIRE_THROWS_WITH(Tensor::empty({1}, DType::f32), Contains("RankContext"));
}

}  // namespace tessera
