// The bytes of kernels are those of their formulas. Regressions in traffic show without a GPU.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/adamw/op.h"
#include "kernels/add/op.h"
#include "kernels/attention/op.h"
#include "kernels/bias/op.h"
#include "kernels/cast/op.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cuda/radix_sort.h"
#include "kernels/dispatch/op.h"
#include "kernels/dropout/op.h"
#include "kernels/embedding/op.h"
#include "kernels/gelu/op.h"
#include "kernels/grouped_matmul/gathered.h"
#include "kernels/layer_norm/op.h"
#include "kernels/linear/op.h"
#include "kernels/matmul/options.h"
#include "kernels/qk_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "kernels/rope/op.h"
#include "kernels/router/op.h"
#include "kernels/scale/op.h"
#include "kernels/swiglu/op.h"
#include "kernels/tree_reduce/op.h"
#include "runtime/emulation/device/emulator.h"
#include "tests/support/emulated_capability.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

/// The launches of `work`, added up. `blocks` counts them.
emulation::LaunchRecord launches_of(const std::function<void()>& work) {
  context().compute_stream().synchronize();
  emulation::start_launch_list();
  work();
  context().compute_stream().synchronize();
  emulation::LaunchRecord sum;
  for (emulation::LaunchRecord& launch : emulation::take_launch_list()) {
    ++sum.blocks;
    for (const emulation::Counter& counter : emulation::counters()) {
      counter.of(sum.work) += counter.of(launch.work);
    }
  }
  return sum;
}

/// One launch asks for exactly these bytes, in whole sectors, each once.
void require_traffic(const emulation::LaunchRecord& launches, std::uint64_t reads,
                     std::uint64_t writes) {
  REQUIRE(launches.blocks == 1);
  REQUIRE(launches.work.reads.bytes == reads);
  REQUIRE(launches.work.writes.bytes == writes);
  REQUIRE(32 * launches.work.reads.sectors == reads);
  REQUIRE(32 * launches.work.writes.sectors == writes);
  REQUIRE(32 * launches.work.reads.distinct == reads);
  REQUIRE(32 * launches.work.writes.distinct == writes);
}

/// So many launches touch sectors of exactly these bytes, some perhaps several times.
void require_distinct(const emulation::LaunchRecord& launches, std::uint64_t reads,
                      std::uint64_t writes, unsigned count = 1) {
  REQUIRE(launches.blocks == count);
  REQUIRE(32 * launches.work.reads.distinct == reads);
  REQUIRE(32 * launches.work.writes.distinct == writes);
}

/// A product reads as many bytes of tiles, also from the cache, and has no bank conflicts.
void require_traffic_of_products(const emulation::LaunchRecord& launches, std::uint64_t reads,
                                 std::uint64_t writes) {
  REQUIRE(launches.blocks == 1);
  REQUIRE(launches.work.bulk_copy_bytes == reads);
  REQUIRE(launches.work.writes.bytes == writes);
  REQUIRE(32 * launches.work.writes.sectors == writes);
  REQUIRE(launches.work.bank_conflicts == 0);
}

Tensor bf16(const Shape& shape) {
  return Tensor::zeros(shape, DType::bf16);
}
Tensor f32(const Shape& shape) {
  return Tensor::zeros(shape, DType::f32);
}

}  // namespace

TEST_CASE("traffic: SwiGLU moves 6NF bytes forward and 10NF backward, 12NF at experts") {
  const test::Rank rank;
  constexpr std::uint64_t N = 6, F = 512;
  const Tensor gate = bf16({N, F}), up = bf16({N, F}), dy = bf16({N, F}), y = bf16({N, F});
  const auto forward = launches_of([&] { swiglu_forward(y, all_columns(gate), all_columns(up)); });
  require_traffic(forward, 4 * N * F, 2 * N * F);
  const auto backward = launches_of([&] {
    swiglu_backward(all_columns(gate), all_columns(up), dy, all_columns(gate), all_columns(up));
  });
  require_traffic(backward, 6 * N * F, 4 * N * F);
  const auto weighed = launches_of([&] {
    weighed_swiglu_backward(dy, {}, all_columns(gate), all_columns(up), dy, all_columns(gate),
                            all_columns(up), {}, {});
  });
  require_traffic(weighed, 6 * N * F, 6 * N * F);
}

TEST_CASE("traffic: GELU moves 4 bytes an element forward and 6 backward, an addition 6") {
  const test::Rank rank;
  constexpr std::uint64_t N = 6, F = 512;
  const Tensor x = bf16({N, F}), y = bf16({N, F}), dy = bf16({N, F});
  require_traffic(launches_of([&] { gelu_forward(y, x); }), 2 * N * F, 2 * N * F);
  require_traffic(launches_of([&] { gelu_backward(dy, dy, x); }), 4 * N * F, 2 * N * F);
  require_traffic(launches_of([&] { add(y, x, dy); }), 4 * N * F, 2 * N * F);
  require_traffic(launches_of([&] { scale(y, x, 2.0); }), 2 * N * F, 2 * N * F);
}

TEST_CASE("traffic: dropout moves 4 bytes an element, a cast to bf16 6, a sum of four 20") {
  const test::Rank rank;
  constexpr std::uint64_t N = 4096;
  const Tensor x = bf16({N}), wide = f32({N});
  require_traffic(launches_of([&] { dropout(x, x, 0.1f, RandomStream(1, "mask")); }), 2 * N, 2 * N);
  require_traffic(launches_of([&] { cast(x, wide); }), 4 * N, 2 * N);
  const std::vector<Tensor> sources = {f32({N}), f32({N}), f32({N}), f32({N})};
  require_traffic(launches_of([&] { tree_reduce(wide, sources, Reduction::sum); }), 16 * N, 4 * N);
}

// f32 masters and moments, a gradient in bf16, and the copy that the model computes with.
TEST_CASE("traffic: AdamW moves 28 bytes an element and writes the copy in the same pass") {
  const test::Rank rank;
  constexpr std::uint64_t N = 4096;
  const AdamWTensors tensors = {
      .p = f32({N}), .m = f32({N}), .v = f32({N}), .gradient = bf16({N}), .copy = bf16({N})};
  const auto update = launches_of([&] { adamw(std::span(&tensors, 1), {}); });
  require_traffic(update, (12 + 2) * N, (12 + 2) * N);
  AdamWTensors rounded = tensors;
  rounded.copy = Tensor::zeros({N}, DType::e4m3);
  rounded.to_8_bits = {f32({1}), f32({1})};
  const auto in_8_bits = launches_of([&] { adamw(std::span(&rounded, 1), {}); });
  REQUIRE(in_8_bits.work.writes.bytes == (12 + 1) * N);
  require_distinct(in_8_bits, (12 + 2) * N + 32, (12 + 1) * N);  // and the scale
}

// Next to rows, the weight once per row and rstd once per row. A row's rstd is a sector of its own.
TEST_CASE("traffic: norms with a residual move 8NC bytes forward") {
  const test::Rank rank;
  constexpr std::uint64_t N = 8, C = 768;
  const Tensor x = bf16({N, C}), residual = bf16({N, C}), y = bf16({N, C});
  const Tensor weight = bf16({C}), bias = bf16({C}), mean = f32({N}), rstd = f32({N});
  const auto rms =
      launches_of([&] { add_rms_norm_forward(y, x, rstd, x, residual, weight, 1e-5f); });
  REQUIRE(rms.work.reads.bytes == 4 * N * C + 2 * N * C);
  REQUIRE(rms.work.writes.bytes == 4 * N * C + 4 * N);
  require_distinct(rms, 4 * N * C + 2 * C, 4 * N * C + 4 * N);
  const auto layer = launches_of(
      [&] { add_layer_norm_forward(y, x, mean, rstd, x, residual, weight, bias, 1e-5f); });
  require_distinct(layer, 4 * N * C + 4 * C, 4 * N * C + 8 * N);
  REQUIRE(rms.work.bank_conflicts + layer.work.bank_conflicts == 0);
}

// dy, dsum and the sum are read, dx is written. A chunk is 8 rows. Each of a chunk's gradients of
// parameters is a line of f32. The last blocks to finish add the lines, which are in the cache.
TEST_CASE("traffic: norms with a residual move 8NC bytes backward, and lines of sums") {
  const test::Rank rank;
  constexpr std::uint64_t N = 64, C = 768;
  const Tensor dy = bf16({N, C}), dsum = bf16({N, C}), sum = bf16({N, C});
  const Tensor weight = bf16({C}), dweight = f32({C}), dbias = f32({C});
  const Tensor mean = f32({N}), rstd = f32({N});
  const auto rms = launches_of(
      [&] { add_rms_norm_backward(dsum, dweight, dy, dsum, sum, weight, rstd, Accumulate::no); });
  const auto layer_with = [&](const Tensor& dx_total) {
    return launches_of([&] {
      add_layer_norm_backward(dsum, dx_total, dweight, dbias, dy, dsum, sum, weight, mean, rstd,
                              Accumulate::no);
    });
  };
  const auto layer = layer_with({}), with_total = layer_with(f32({C}));
  const std::uint64_t line = 4 * C, lines = N / 8 * line;
  require_distinct(rms, 6 * N * C + 2 * C + 4 * N, 2 * N * C + lines + line);
  require_distinct(layer, 6 * N * C + 2 * C + 8 * N, 2 * N * C + 2 * lines + 2 * line);
  require_distinct(with_total, 6 * N * C + 2 * C + 8 * N, 2 * N * C + 3 * lines + 3 * line);
  // Each sum has conflicts when its line is written. Adding a row to the third one has none.
  REQUIRE(2 * with_total.work.bank_conflicts == 3 * layer.work.bank_conflicts);
}

// A table row of f32 cosines and sines for each position: 4D bytes, for all heads.
TEST_CASE("traffic: RoPE moves 4 bytes a channel, and the table once") {
  const test::Rank rank;
  constexpr std::uint64_t T = 16, H = 4, D = 64;
  const Tensor x = bf16({1, T, H * D});
  const RopeTable table = rope_table(T, rope_frequencies(D, 1e4), RopePairs::half_split);
  const auto rotation = launches_of([&] { rope_forward(heads_of(x, 0, H, D), table); });
  REQUIRE(rotation.work.writes.bytes == 2 * T * H * D);
  require_distinct(rotation, 2 * T * H * D + 4 * T * D, 2 * T * H * D);
}

// A statistic for each head of a token; 8 heads of one are a sector. Backward, the sums of both weights
// are lines of f32 for each token, and the last blocks add them.
TEST_CASE("traffic: norms of heads move 4 bytes a channel forward, with RoPE, and 6 backward") {
  const test::Rank rank;
  constexpr std::uint64_t T = 16, H = 6, K = 2, D = 128, A = H + K;
  const Tensor x = bf16({1, T, (H + 2 * K) * D}), y = bf16({1, T, A * D}), dx = bf16(x.shape());
  const Tensor weight = bf16({2 * D}), dweight = f32({2 * D}), rstd = f32({1, T, A});
  const Rotary rotary{rope_table(T, rope_frequencies(D, 1e4), RopePairs::half_split)};
  const auto forward =
      launches_of([&] { qk_norm_forward(y, rstd, x, weight, rotary, H, K, 1e-6f); });
  REQUIRE(forward.work.writes.bytes == 2 * T * A * D + 4 * T * A);
  require_distinct(forward, 2 * T * A * D + 4 * T * D + 4 * D, 2 * T * A * D + 4 * T * A);
  const auto backward =
      launches_of([&] { qk_norm_backward(dx, dweight, x, weight, rstd, H, K, Accumulate::no); });
  const std::uint64_t lines = 8 * T * D;
  require_distinct(backward, 4 * T * A * D + 4 * T * A + 4 * D, 2 * T * A * D + lines + 8 * D);
}

TEST_CASE("traffic: a table's rows are read once for each id, and added to the gradient once") {
  const test::Rank rank;
  constexpr std::uint64_t N = 32, C = 768, V = 64;
  const Tensor table = bf16({V, C}), y = bf16({N, C});
  std::vector<std::int32_t> each;
  for (std::uint64_t n = 0; n < N; ++n) each.push_back(static_cast<std::int32_t>(2 * n));
  const Tensor ids = Tensor::from(each, {N});
  const auto forward = launches_of([&] { embedding_forward(y, table, ids); });
  require_distinct(forward, 2 * N * C + 4 * N, 2 * N * C);
}

TEST_CASE("traffic: the loss reads a logit once, and its gradient reads and writes it once") {
  const test::Rank rank;
  constexpr std::uint64_t N = 4, V = 1024;
  const Tensor logits = bf16({N, V}), loss = f32({N}), logsumexp = f32({N}), dloss = f32({N});
  const Tensor targets = Tensor::from(std::vector<std::int32_t>(N, 5), {N});
  const auto forward =
      launches_of([&] { cross_entropy_forward(loss, logsumexp, logits, targets); });
  require_distinct(forward, 2 * N * V + 32, 64);
  const auto backward =
      launches_of([&] { cross_entropy_backward(logits, dloss, logits, logsumexp, targets); });
  require_distinct(backward, 2 * N * V + 96, 2 * N * V);
}

// The blocks of a cluster keep their shares of a row in shared memory. One block keeps 50,488 logits and reads the
// others again. A warp also reads the sector of a row's target.
TEST_CASE("traffic: the loss and its gradient read a row of 128256 logits once, by clusters") {
  constexpr std::uint64_t N = 2, V = 128'256;
  for (const auto& [capability, again] : {std::pair<int, std::uint64_t>{90, 0}, {89, V - 50'488}}) {
    const test::Capability device(capability);
    const test::Rank rank;
    const Tensor logits = bf16({N, V}), losses = f32({N});
    const Tensor targets = Tensor::from(std::vector<std::int32_t>(N, 5), {N});
    const auto both = launches_of([&] {
      cuda::losses_and_gradients_of_rows(losses, {logits, V, targets, 0, kIgnoreIndex}, 1.0f);
    });
    const std::uint64_t of_targets = 32 * both.work.reads.sectors - 2 * N * (V + again);
    REQUIRE(of_targets < 2 * N * V / 50);
    REQUIRE(both.work.writes.bytes == 2 * N * (V + 1) + 4 * N);
    REQUIRE(32 * both.work.writes.distinct == 2 * N * V + 32);
  }
}

// Chunks are of 8 rows.
TEST_CASE("traffic: the gradient of a bias reads dy once, and a line of sums for each chunk") {
  const test::Rank rank;
  constexpr std::uint64_t N = 64, C = 768;
  const Tensor dy = bf16({N, C}), dbias = f32({C});
  const auto backward = launches_of([&] { bias_backward(dbias, dy, Accumulate::no); });
  const std::uint64_t line = 4 * C, lines = N / 8 * line;
  require_distinct(backward, 2 * N * C, lines + line);
}

// A row goes to k experts: read once from memory, written k times; and back.
TEST_CASE("traffic: tokens go to k experts and back in 2(k + 1)C bytes each way") {
  const test::Rank rank;
  constexpr std::uint64_t N = 32, k = 2, C = 512, E = 8;
  const Tensor x = bf16({N, C}), rows = bf16({N * k, C});
  std::vector<std::int32_t> chosen;
  for (std::uint64_t i = 0; i < N * k; ++i) chosen.push_back(static_cast<std::int32_t>(i % E));
  const Tensor experts = Tensor::from(chosen, {N, k});
  const Tensor places = Tensor::empty({N, k}, DType::i32);
  const Tensor offsets = Tensor::empty({E + 1}, DType::i32);
  dispatch_order(places, offsets, /*slots=*/{}, experts);
  const auto there = launches_of([&] { dispatch(rows, x, places); });
  require_distinct(there, 2 * N * C + 4 * N * k, 2 * N * k * C);
  const auto back = launches_of([&] { combine(x, rows, places); });
  require_distinct(back, 2 * N * k * C + 4 * N * k, 2 * N * C);
  const Tensor weights = bf16({N, k});
  const auto added = launches_of([&] { combine(x, rows, places, weights, x); });
  require_distinct(added, 2 * N * (k + 1) * C + 6 * N * k, 2 * N * C);
}

TEST_CASE("traffic: a router reads its logits once, and again for their gradient") {
  const test::Rank rank;
  constexpr std::uint64_t N = 64, E = 16, k = 4;
  const Tensor logits = bf16({N, E}), weights = bf16({N, k}), dlogits = bf16({N, E});
  const Tensor experts = Tensor::empty({N, k}, DType::i32);
  constexpr RouterWeights kKind = RouterWeights::normalized_softmax;
  const auto forward = launches_of([&] { router_forward(weights, experts, logits, {}, kKind); });
  require_distinct(forward, 2 * N * E, 6 * N * k);
  const auto backward =
      launches_of([&] { router_backward(dlogits, weights, logits, experts, kKind); });
  require_distinct(backward, 2 * N * E + 6 * N * k, 2 * N * E);
}

// A tile has 2,048 words of 8 bytes and 256 counts of 4. All counts have a line of sums behind the last.
TEST_CASE("traffic: a sort moves bytes in proportion to its tiles, and sorts") {
  const test::Rank rank;
  for (const std::uint64_t tiles : {1, 15, 16, 40}) {
    constexpr std::uint64_t kWords = 8 * 2048, kCounts = 4 * 256;
    std::vector<std::int64_t> expected;  // a digit, and the place from which it comes
    for (std::uint64_t i = 0; i < tiles * 2048; ++i) {
      expected.push_back(static_cast<std::int64_t>((i * i / 7 % 256) << 32 | i));
    }
    const Tensor words = Tensor::from(expected, {static_cast<std::int64_t>(expected.size())});
    Tensor sorted;
    const auto pass = launches_of([&] { sorted = gpu::radix_sorted(words, 32, 40); });
    REQUIRE(pass.blocks == 2);
    REQUIRE(pass.work.reads.bytes == tiles * (2 * kWords + 3 * kCounts));
    REQUIRE(pass.work.writes.bytes == tiles * (kWords + 2 * kCounts) + kCounts);
    std::sort(expected.begin(), expected.end());
    REQUIRE((sorted.to_vector<std::int64_t>() == expected));
  }
}

// Hopper's kernels. H heads of queries read K heads of keys. A query has a logsumexp before the
// backward pass, and two statistics in it.
TEST_CASE("traffic: attention reads its tensors from memory once, and d_o twice backward") {
  const test::Rank rank;
  constexpr std::uint64_t T = 256, H = 4, K = 2, D = 64;
  constexpr std::uint64_t kQuery = 2 * T * H * D, kKey = 2 * T * K * D;  // bytes
  const auto heads = [](std::int64_t count) {
    return heads_of(bf16({1, T, count * static_cast<std::int64_t>(D)}), 0, count, D);
  };
  const Heads q = heads(H), k = heads(K), v = heads(K), o = heads(H), d_o = heads(H);
  const Tensor logsumexp = f32({1, H, T});
  const auto forward = launches_of([&] { attention_forward(o, logsumexp, q, k, v, 0.125f); });
  REQUIRE(forward.work.warpgroup_products > 0);
  require_distinct(forward, kQuery + 2 * kKey, kQuery + 4 * T * H);
  // A block has 128 queries or keys of a head, and visits the tiles of 128 that are not hidden.
  constexpr std::uint64_t kVisited = H * (128 + 256);
  REQUIRE(32 * forward.work.reads.sectors == kQuery + 4 * D * kVisited);
  const Heads dq = heads(H), dk = heads(K), dv = heads(K);
  const auto backward =
      launches_of([&] { attention_backward(dq, dk, dv, d_o, q, k, v, o, logsumexp, 0.125f); });
  // The statistics are made from o, d_o and logsumexp, and then read again.
  const std::uint64_t statistics = 2 * kQuery + 4 * T * H;
  const std::uint64_t gradients = 2 * kQuery + 2 * kKey + 8 * T * H;
  require_distinct(backward, statistics + gradients, kQuery + 2 * kKey + 8 * T * H, 2);
  const std::uint64_t of_queries = 2 * kQuery + 8 * T * H + 4 * D * kVisited;
  const std::uint64_t of_keys = 2 * kKey + (4 * D + 8) * kVisited;
  REQUIRE(32 * backward.work.reads.sectors == statistics + of_queries + of_keys);
  // With sums of rows it writes a line for 64 tokens, and reads nothing more.
  const Tensor packed = bf16({1, T, (H + 2 * K) * D});
  Tensor lines;
  const auto with_sums = launches_of([&] {
    attention_backward(heads_of(packed, 0, H, D), heads_of(packed, H * D, K, D),
                       heads_of(packed, (H + K) * D, K, D), d_o, q, k, v, o, logsumexp, 0.125f, {},
                       nullptr, &lines);
  });
  require_distinct(with_sums, statistics + gradients,
                   kQuery + 2 * kKey + 8 * T * H + T / 64 * (H + 2 * K) * D * 4, 2);
  REQUIRE(with_sums.work.reads.sectors == backward.work.reads.sectors);
}

// Hopper's kernel. A tile has 128 rows by 128 columns of gate and of up. For every 64 depths the copy engine
// reads 48 KB. The epilogue finds the results in shared memory, and stores each once.
TEST_CASE("traffic: a product stores gate, up and their SwiGLU once, without bank conflicts") {
  const test::Rank rank;
  constexpr std::uint64_t P = 256, F = 256, K = 128;
  const Tensor x = bf16({P, K}), w = bf16({2 * F, K}), gate_up = bf16({P, 2 * F});
  const Tensor y = bf16({P, F});
  const auto product =
      launches_of([&] { linear_swiglu_forward(y, gate_up, x, w, Transpose::yes, {}); });
  constexpr std::uint64_t kTiles = P / 128 * F / 128, kSteps = K / 64;
  require_traffic_of_products(product, kTiles * kSteps * 32 * 1024, 6 * P * F);
}

// A step of 128 depths has 16 KB of each factor. Of 16 tiles two and two share b. A consumer takes a step in four
// instructions.
TEST_CASE("traffic: 8-bit experts read one byte a number, without bank conflicts") {
  const test::Rank rank;
  constexpr std::uint64_t F = 64, K = 384, kSteps = K / 128;
  const Tensor one = Tensor::full({1}, DType::f32, 1.0);
  for (const auto& [tiles, bytes] :
       {std::pair<std::uint64_t, std::uint64_t>{2, 16 + 16}, {16, 16 + 16 / 2}}) {
    const std::uint64_t P = 128 * tiles;
    const auto rows = static_cast<std::int64_t>(P);
    const Factor x(Tensor::zeros({rows, K}, DType::e4m3), one),
        w(Tensor::zeros({1, 2 * F, K}, DType::e4m3), one);
    const Tensor gate_up = bf16({rows, 2 * F}), y = bf16({rows, F});
    const Tensor offsets =
        Tensor::from(std::vector<std::int32_t>{0, static_cast<std::int32_t>(P)}, {2});
    const auto product =
        launches_of([&] { grouped_matmul_swiglu(y, gate_up, x, w, offsets, Transpose::yes); });
    require_traffic_of_products(product, tiles * kSteps * bytes * 1024, 6 * P * F);
    REQUIRE(product.work.warpgroup_products == tiles * kSteps * 2 * 4);
    REQUIRE(product.work.matrix_flops == 2 * P * 2 * F * K);
  }
}

// A step's tile of a has 16 KB, and that of b 32 KB. Two thread blocks with tiles below each other copy half of
// b's to both. Of three tiles the last one would have no partner.
TEST_CASE("traffic: thread blocks of a cluster take 32 KB a step, single ones 48") {
  const test::Rank rank;
  constexpr std::uint64_t K = 192, F = 128, kSteps = K / 64;
  for (const auto& [tiles, bytes] : {std::pair<std::uint64_t, std::uint64_t>{1, 16 + 32},
                                     {2, 16 + 32 / 2},
                                     {3, 16 + 32},
                                     {4, 16 + 32 / 2}}) {
    const auto P = static_cast<std::int64_t>(tiles * 128);
    const Tensor x = bf16({P, K}), w = bf16({K, 2 * F}), gate_up = bf16({P, 2 * F});
    const Tensor y = bf16({P, F});
    const auto product =
        launches_of([&] { linear_swiglu_forward(y, gate_up, x, w, Transpose::no, {}); });
    require_traffic_of_products(product, tiles * kSteps * bytes * 1024, 6 * tiles * 128 * F);
  }
}

// Gate and up are read for their gradients. The gradient of their SwiGLU is not stored.
TEST_CASE("traffic: SwiGLU's gradient as an epilogue reads gate and up once") {
  const test::Rank rank;
  constexpr std::uint64_t P = 256, F = 512, K = 128;
  const Tensor dy = bf16({P, K}), w = bf16({K, F}), gate_up = bf16({P, 2 * F}), dh = bf16({P, F});
  const auto product = launches_of(
      [&] { swiglu_linear_backward_input(gate_up, dh, dy, w, Transpose::yes, gate_up); });
  constexpr std::uint64_t kTiles = P / 128 * F / 256, kSteps = K / 64;
  constexpr std::uint64_t kCopied = kTiles * kSteps * 32 * 1024;
  require_traffic_of_products(product, kCopied, 4 * P * F);
  REQUIRE(product.work.reads.bytes == kCopied + 4 * P * F);
  REQUIRE(32 * product.work.reads.sectors == kCopied + 4 * P * F);
}

// GELU's input is read for its gradient, and a line of sums is written for 128 rows.
TEST_CASE("traffic: GELU's gradient as an epilogue writes lines of sums") {
  const test::Rank rank;
  matmul_options().gelu = GeluChoice::own;
  constexpr std::uint64_t P = 256, F = 512, K = 128;
  const Tensor dy = bf16({P, K}), w = bf16({K, F}), pre = bf16({P, F}), dpre = bf16({P, F});
  Tensor sums;
  const auto product = launches_of(
      [&] { linear_backward_input(dpre, dy, w, Transpose::yes, pre, GeluForm::tanh, &sums); });
  constexpr std::uint64_t kTiles = P / 128 * F / 256, kSteps = K / 64;
  constexpr std::uint64_t kCopied = kTiles * kSteps * 32 * 1024;
  require_traffic_of_products(product, kCopied, 2 * P * F + 4 * P / 128 * F);
  REQUIRE(product.work.reads.bytes == kCopied + 2 * P * F);
}

// The weighed rows are stored as well, and for each tile 4 bytes a row, by slot. 4 bytes a row tell the slot, and 2
// are the weight, which both tiles read.
TEST_CASE("traffic: gradients of experts' SwiGLU as an epilogue move 10 bytes for each element") {
  const test::Rank rank;
  constexpr std::uint64_t P = 256, F = 512, K = 128, kTilesAcross = F / 256;
  const Tensor dy = bf16({P, K}), w = bf16({1, K, F}), gate_up = bf16({P, 2 * F}), y = bf16({P, F});
  const Tensor weights = bf16({P / 2, 2}), dweights = bf16({P / 2, 2});
  std::vector<std::int32_t> in_order(P);
  std::iota(in_order.begin(), in_order.end(), 0);
  const Tensor places = Tensor::from(in_order, {P / 2, 2}), slots = Tensor::from(in_order, {P});
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, P}, {2});
  const auto run = launches_of([&] {
    grouped_matmul_swiglu_backward(y, dweights, gate_up, dy, w, gate_up, offsets, places, slots,
                                   weights);
  });
  constexpr std::uint64_t kSteps = K / 64, kCopied = P / 128 * kTilesAcross * kSteps * 48 * 1024;
  constexpr std::uint64_t kSums = 4 * kTilesAcross * P, kWeights = (4 + 2) * kTilesAcross * P;
  REQUIRE(run.work.bulk_copy_bytes == kCopied);
  REQUIRE(run.work.writes.bytes == 6 * P * F + kSums);
  const std::uint64_t of_offsets = run.work.reads.bytes - kCopied - 4 * P * F - kWeights;
  REQUIRE(of_offsets < 16 * 1024);  // by every lane, for each tile
  REQUIRE(run.work.bank_conflicts == 0);
}

// 32 wide tiles for each of two experts. The rows of the copies end where an expert's do.
TEST_CASE("traffic: gradients of experts' weights are stored once, without bank conflicts") {
  const test::Rank rank;
  constexpr std::uint64_t E = 2, M = 1024, N = 1024, P = 128;
  const Tensor x = bf16({P, M}), dy = bf16({P, N}), sums = f32({E, M, N}),
               rounded = bf16({E, M, N});
  const Tensor offsets = Tensor::from(std::vector<std::int32_t>{0, 64, 128}, {3});
  for (const Tensor& dw : {sums, rounded}) {
    const std::uint64_t bytes = E * M * N * size_of(dw.dtype());
    const auto first = launches_of([&] { grouped_matmul_weight(dw, x, dy, offsets); });
    REQUIRE(first.work.writes.bytes == bytes);
    REQUIRE(32 * first.work.writes.sectors == bytes);
    REQUIRE(first.work.bank_conflicts == 0);
    const auto next =
        launches_of([&] { grouped_matmul_weight(dw, x, dy, offsets, Accumulate::yes); });
    REQUIRE(32 * (next.work.reads.sectors - first.work.reads.sectors) == bytes);
    REQUIRE(next.work.bank_conflicts == 0);
  }
}

// Two experts of every token. A tile of 128 rows has the tokens' rows by copies of the producer's lanes, also from
// the cache. No row is dispatched: from memory come the tokens once, the weights, the slots and the offsets.
TEST_CASE("traffic: a product gathers the rows of tokens, without bank conflicts") {
  const test::Rank rank;
  constexpr std::uint64_t N = 128, E = 2, P = E * N, K = 192, F = 256, kAcross = 2 * F / 256;
  const Tensor tokens = bf16({N, K}), w = bf16({E, 2 * F, K}), gate_up = bf16({P, 2 * F});
  const Tensor y = bf16({P, F});
  std::vector<std::int32_t> experts;
  for (std::uint64_t slot = 0; slot < P; ++slot)
    experts.push_back(static_cast<std::int32_t>(slot % E));
  const Tensor places = Tensor::empty({N, E}, DType::i32),
               offsets = Tensor::empty({E + 1}, DType::i32), slots = Tensor::empty({P}, DType::i32);
  dispatch_order(places, offsets, slots, Tensor::from(experts, {N, E}));
  const RoutedRows rows(tokens, places, slots);
  const auto product =
      launches_of([&] { grouped_matmul_swiglu(y, gate_up, rows, w, offsets, Transpose::yes); });
  require_traffic_of_products(product, E * kAcross * K * 256 * 2, 6 * P * F);
  REQUIRE(product.work.async_copy_bytes == kAcross * 2 * P * K);
  CAPTURE(32 * product.work.reads.distinct);
  REQUIRE(32 * product.work.reads.distinct == 2 * (N * K + E * 2 * F * K) + 4 * P + 32);
  const Tensor dw = f32({E, 2 * F, K}), dx = f32({E, K, 2 * F});
  for (const bool of_a : {false, true}) {
    const auto gradient = launches_of([&] {
      of_a ? grouped_matmul_weight(dx, rows, Factor(gate_up), offsets, Accumulate::no)
           : grouped_matmul_weight(dw, Factor(gate_up), rows, offsets, Accumulate::no);
    });
    REQUIRE(gradient.work.bank_conflicts == 0);
    CAPTURE(32 * gradient.work.reads.distinct);
    REQUIRE(32 * gradient.work.reads.distinct == 2 * (N * K + P * 2 * F) + 4 * P + 32);
    REQUIRE(32 * gradient.work.writes.sectors == 4 * E * 2 * F * K);
  }
}

// H query heads read K key heads, four each. Of every 128 keys a query head has D sums, the largest score and
// the sum of weights, in f32. Each of its 32 channels reads the statistics of all splits twice.
TEST_CASE("traffic: one query reads each key and value once, and 3 % more for its splits") {
  const test::Rank rank;
  constexpr std::uint64_t T = 1024, H = 8, K = 2, D = 128, kSplits = T / 128;
  const auto rows = [](std::uint64_t tokens, std::uint64_t heads) {
    const auto width = static_cast<std::int64_t>(heads * D);
    return heads_of(bf16({1, static_cast<std::int64_t>(tokens), width}), 0,
                    static_cast<std::int64_t>(heads), D);
  };
  const Heads q = rows(1, H), k = rows(T, K), v = rows(T, K), o = rows(1, H);
  const Tensor logsumexp = f32({1, H, 1});
  const auto decoding = launches_of([&] { attention_forward(o, logsumexp, q, k, v, 0.125f); });
  const std::uint64_t keys = 4 * T * K * D, of_splits = kSplits * H * (4 * D + 8);
  REQUIRE(decoding.blocks == 2);
  REQUIRE(decoding.work.reads.bytes >= keys + of_splits);
  require_distinct(decoding, keys + 2 * H * D + of_splits, of_splits + 2 * H * D + 4 * H, 2);
  REQUIRE(static_cast<double>(of_splits) < 0.032 * static_cast<double>(keys));
}

}  // namespace tessera
