#include "runtime/host_pieces.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "runtime/context.h"
#include "tests/support/rank.h"

namespace tessera {

TEST_CASE("a tensor is filled from the host in consecutive pieces") {
  const test::Rank rank;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1000}, std::int64_t{18'000'000}}) {
    const Tensor tensor = Tensor::empty({count}, DType::i32);
    std::int64_t next = 0, pieces = 0;
    write_from_host(tensor, [&](const Tensor& piece, std::int64_t begin) {
      REQUIRE(piece.device().is_cpu());
      REQUIRE(begin == next);
      auto* const values = piece.data<std::int32_t>();
      std::iota(values, values + piece.numel(), static_cast<std::int32_t>(begin));
      next += piece.numel();
      ++pieces;
    });
    REQUIRE(next == count);
    if (test::device().is_cpu()) REQUIRE(pieces == 1);
    std::vector<std::int32_t> expected(static_cast<std::size_t>(count));
    std::iota(expected.begin(), expected.end(), 0);
    REQUIRE((tensor.to_vector<std::int32_t>() == expected));
  }
  // A GPU's tensor is written through a buffer of one piece, which is released.
  const MemoryAccount account = context().host_allocator().account();
  if (!test::device().is_cpu()) REQUIRE(account[Category::workspace].peak == 32 << 20);
  REQUIRE(account[Category::workspace].current == 0);
}

}  // namespace tessera
