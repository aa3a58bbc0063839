#include "runtime/host_copy.h"

#include <catch2/catch.hpp>

#include "runtime/error.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("copies to the host have the elements of the time when they were queued") {
  const test::Rank rank;
  const Tensor numbers = Tensor::from(std::vector<float>{1.5f, -2.0f}, {2});
  const Tensor words = Tensor::from(std::vector<std::int64_t>{3, 4, 5}, {3});
  const HostCopy<float> first(numbers);
  const HostCopy<std::int64_t> second(words.slice(1, 3));
  if (numbers.device() != Device{}) {  // there, a tensor in host memory is read late
    numbers.zero();
    words.zero();
  }
  current_stream().synchronize();
  CHECK(first.values() == std::vector<float>{1.5f, -2.0f});
  CHECK(second.values() == std::vector<std::int64_t>{4, 5});
}

TEST_CASE("a copy to the host is read in its dtype") {
  const test::Rank rank;
  const HostCopy<float> copy(Tensor::zeros({1}, DType::i32));
  current_stream().synchronize();
  CHECK_THROWS_AS(copy.values(), Error);
}

}  // namespace tessera
