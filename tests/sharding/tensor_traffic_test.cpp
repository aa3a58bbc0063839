// The bytes of tensor-parallel ranks, counted by hand for two small models.
#include "sharding/plan/tensor_traffic.h"

#include <catch2/catch.hpp>

namespace tessera {

static bool operator==(const TensorTraffic::Bytes& a, const TensorTraffic::Bytes& b) {
  return a.added == b.added && a.copied == b.copied;
}

// One layer of width 3 on 2 ranks. A gather or scatter of 4 rows sends the other rank its 2: 6 numbers.
//
//   gathers   layer 2 forward and 4 backward, embedding's gradient 1, head 1:              8 x 6 copied
//   scatters  layer 2 forward and 2 backward, head 1:                         5 x 6 added, always in f32
//             embedding's rows:                                                                6 added
//   head      3 numbers of each of 4 rows to the other rank, in f32:                          12 copied
//   norms     3 all-reduces of 3 numbers in f32. Rank 0 owns 1 of them and rank 1 owns 2. A rank sends
//             the others to be added, and copies of its own sums.
TEST_CASE("tensor traffic: a layer on two ranks that share out its rows") {
  TensorTraffic traffic = {.rows = 4, .width = 3, .forward_passes = {1}};
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (30 + 6 + 3 * 2), .copied = 4 * (48 + 12 + 3 * 1)});
  CHECK(traffic.of_micro_batch(2, 1, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (30 + 6 + 3 * 1), .copied = 4 * (48 + 12 + 3 * 2)});
  traffic.dtype = DType::bf16;
  CHECK(
      traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
      TensorTraffic::Bytes{.added = 4 * (30 + 3 * 2) + 2 * 6, .copied = 2 * 48 + 4 * (12 + 3 * 1)});
  // The layer's 6 gathers are of 8-bit factors, the others of bf16.
  traffic.fp8_rows = true;
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1).copied == 36 + 2 * 12 + 4 * (12 + 3 * 1));
}

// Sums behind the layer's products are messages, and those of the embedding and the head are added as they travel.
TEST_CASE("tensor traffic: rows that travel by rank are as many bytes") {
  TensorTraffic traffic = {.rows = 4, .width = 3, .forward_passes = {1}};
  const TensorTraffic::Bytes together = traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1);
  traffic.row_exchange = RowExchange::by_rank;
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = together.added - 4 * 4 * 6,
                             .copied = together.copied + 4 * 4 * 6});
  traffic.rows = 6;  // every rank has all rows, and nothing is scattered
  const TensorTraffic::Bytes whole = traffic.of_micro_batch(2, 0, /*sum_parts=*/4, 1);
  traffic.row_exchange = RowExchange::together;
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/4, 1) == whole);
}

// Queries, keys and values as three products: 2 gathers more forward and 2 in backward, and 2 scatters.
TEST_CASE(
    "tensor traffic: a layer of which the products of attention gather their input one by one") {
  TensorTraffic traffic = {.rows = 4, .width = 3, .forward_passes = {1}};
  const TensorTraffic::Bytes joined = traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1);
  traffic.attention_readers = 3;
  CHECK(
      traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
      TensorTraffic::Bytes{.added = joined.added + 4 * 2 * 6, .copied = joined.copied + 4 * 4 * 6});
}

// The same layer in a stage without the embedding and the head: 6 gathers, 4 scatters, and 2 norms.
TEST_CASE("tensor traffic: a stage in the middle of a pipeline") {
  const TensorTraffic traffic = {
      .rows = 4, .width = 3, .forward_passes = {1}, .embeds = false, .has_head = false};
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (24 + 2 * 2), .copied = 4 * (36 + 2 * 1)});
}

// One layer with experts and a shared one. Its forward pass runs again in backward.
//
//   gathers   attention 2 + 2, router 2 + 1, experts 2 + 2, shared expert 2 + 2:    15 x 6 copied
//   scatters  attention, experts and shared expert 2 + 1 each:                       9 x 6 added
//   weights   of 4 x 2 dispatched rows: an all-reduce, of which a rank owns 4:       4 added, 4 copied
//   norms     2 all-reduces
//
// Rows that have travelled to their experts are kept, so one gather is spared.
TEST_CASE("tensor traffic: a layer that is a mixture of experts") {
  TensorTraffic traffic = {.rows = 4,
                           .width = 3,
                           .mixture_passes = {2},
                           .experts = {.per_token = 2, .shared = true, .dispatches_again = true},
                           .embeds = false,
                           .has_head = false};
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (54 + 4 + 2 * 2), .copied = 4 * (90 + 4 + 2 * 1)});
  traffic.experts.dispatches_again = false;
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (54 + 4 + 2 * 2), .copied = 4 * (84 + 4 + 2 * 1)});
  traffic.experts.shared = false;
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/2, 1) ==
        TensorTraffic::Bytes{.added = 4 * (36 + 4 + 2 * 2), .copied = 4 * (60 + 4 + 2 * 1)});
}

// With 4 parts of a sum, 6 rows are not shared out. Every rank has all rows, so that nothing is gathered,
// and norms need no sum. A sum of 6 x 3 numbers is an all-reduce: each rank owns 9 of them, sends 9 and
// copies 9. There are 4 in the layer, 1 for the embedding's rows and 1 for the head.
TEST_CASE("tensor traffic: rows that the parts of a sum do not divide") {
  TensorTraffic traffic = {.rows = 6, .width = 3, .forward_passes = {1}};
  CHECK(traffic.of_micro_batch(2, 0, /*sum_parts=*/4, 1) ==
        TensorTraffic::Bytes{.added = 4 * 6 * 9, .copied = 4 * (6 * 9 + 18)});
  traffic.dtype = DType::bf16;
  CHECK(traffic.of_micro_batch(2, 1, /*sum_parts=*/4, 1) ==
        TensorTraffic::Bytes{.added = 4 * 5 * 9 + 2 * 9, .copied = 4 * (5 * 9 + 18) + 2 * 9});
}

// Two layers of width 2 on 4 ranks with 8 rows: 2 rows of each of 3 others are 12 numbers. The second
// layer's forward pass runs again in backward.
//
//   gathers   layers 2 + 4 and 4 + 4, the embedding's and the positions' gradients 2, head 1:  17 x 12
//   scatters  layers 2 + 2 and 4 + 2, head 1 in f32: 11 x 12;  embedding's rows: 12
//   head      3 numbers of each of 8 rows to 3 ranks: 72
//   norms     with a bias: 2 all-reduces of 2 numbers for each of 7 norms, three of a layer. Rank 1 owns one number: it
//             sends 1 and makes 3 copies of 1. Rank 0 owns none: it sends 2.
//   heads     their norms' 6 numbers, for each of 2 layers and 2 leaves of tokens. Rank 0 owns 1: it
//             sends 5 and makes 3 copies of 1. Rank 1 owns 2.
TEST_CASE("tensor traffic: passes that run again, positions, biases, and norms of heads") {
  const TensorTraffic traffic = {.rows = 8,
                                 .width = 2,
                                 .forward_passes = {1, 2},
                                 .layer_norms = 3,
                                 .norm_vectors = 2,
                                 .head_norms = 6,
                                 .learns_positions = true};
  CHECK(traffic.of_micro_batch(4, 0, /*sum_parts=*/8, /*token_leaves=*/2) ==
        TensorTraffic::Bytes{.added = 4 * (132 + 12 + 14 * 2 + 4 * 5),
                             .copied = 4 * (204 + 72 + 14 * 0 + 4 * 3)});
  CHECK(traffic.of_micro_batch(4, 1, /*sum_parts=*/8, /*token_leaves=*/2) ==
        TensorTraffic::Bytes{.added = 4 * (132 + 12 + 14 * 1 + 4 * 4),
                             .copied = 4 * (204 + 72 + 14 * 3 + 4 * 6)});
}

// Two heads of keys of 6 channels on 4 ranks: 2 ranks share a head. A rank has computed 3 channels of the
// head, of keys and of values, for 8 rows: 48 numbers, which it sends its sharer in each forward pass. In
// backward it sends the gradients of the sharer's 48, in f32.
TEST_CASE("tensor traffic: ranks that share heads of keys") {
  TensorTraffic traffic = {.rows = 8, .width = 2, .forward_passes = {1, 2}, .dtype = DType::bf16};
  const auto bytes = [&](std::int64_t heads) {
    traffic.keys = {.pieces = heads, .uses = 8 / heads};
    traffic.head_size = 6;
    return traffic.of_micro_batch(4, 0, /*sum_parts=*/8, 1);
  };
  const TensorTraffic::Bytes alone = bytes(4), shared = bytes(2);
  CHECK(shared.copied - alone.copied == 3 * 2 * 48);
  CHECK(shared.added - alone.added == 2 * 4 * 48);
}

}  // namespace tessera
