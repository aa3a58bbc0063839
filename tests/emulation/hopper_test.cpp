// Hopper's instructions on the emulator: their results, and that broken rules are noticed.
#include <catch2/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.h"
#include "tests/emulation/launch.h"
#include "tests/support/schedule_guard.h"

namespace tessera {
namespace {

using Catch::Contains;
using gpu::Panels;
using test::kSchedules;
using test::launch;

/// Bugs of the kernel below. The emulator names the rule that is broken, or results are NaN.
enum class Bug {
  none,
  no_wait_for_tiles,
  no_wait_for_products,
  too_few_bytes,
  too_many_bytes,
  tile_between_lines,
  descriptor_between_rows,
  ordinary_writes,
  writes_without_a_note,
  ordinary_writes_and_fence,  // no bug
  fence_after_barrier,        // no bug
  fence_of_first_thread,
  fence_of_last_thread,
  fence_of_first_thread_after_barrier,
  refill_in_flight,
  rewritten_in_flight,
  result_written_in_flight,
  operand_written_in_flight,
  result_of_a_group_in_flight,
  no_fence,
  no_wait_at_the_end,
  warps_apart,
};

constexpr int kRows = 64, kN = 64, kDepth = 64, kTile = 64 * 64;
constexpr std::size_t kBytes = 3 * kTile * sizeof(bfloat16) + 2 * sizeof(gpu::Barrier) + 1024;

/// out (64 x 64) = a (64 x 64) b, by one warpgroup. b's tile has columns of b in its rows, or rows. a
/// comes from shared memory, or from registers.
template <Bug bug, Panels kPanels, bool kRegisters>
__global__ void product(const gpu::TensorMap a_map, const gpu::TensorMap b_map,
                        const bfloat16* a_in, float* out) {
  gpu::TileMemory memory;
  const std::size_t odd = bug == Bug::tile_between_lines ? 128 : 0;
  auto* const a = memory.take<bfloat16>(kTile, 1024) + odd;
  auto* const b = memory.take<bfloat16>(2 * kTile, 1024);
  auto* const full = memory.take<gpu::Barrier>(1);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  if (thread == 0) {
    gpu::initialize(*full, 1);
    gpu::publish_barriers();
  }
  __syncthreads();
  if (thread == 0) {
    const int more = bug == Bug::too_few_bytes ? -16 : bug == Bug::too_many_bytes ? 16 : 0;
    gpu::arrive_and_expect(*full, 2 * kTile * 2 + more);
    gpu::copy_tile(a, a_map, {0, 0, 0, 0}, *full);
    gpu::copy_tile(b, b_map, {0, 0, 0, 0}, *full);
  }
  if (bug != Bug::no_wait_for_tiles) gpu::wait(*full, 0);
  constexpr bool kWaits =
      bug == Bug::fence_after_barrier || bug == Bug::fence_of_first_thread_after_barrier;
  constexpr bool kAllFence = bug == Bug::ordinary_writes_and_fence ||
                             bug == Bug::fence_after_barrier || bug == Bug::writes_without_a_note;
  constexpr bool kFirstFences =
      bug == Bug::fence_of_first_thread || bug == Bug::fence_of_first_thread_after_barrier;
  constexpr bool kWrites = kWaits || kAllFence || kFirstFences || bug == Bug::ordinary_writes ||
                           bug == Bug::fence_of_last_thread;
  if constexpr (kWrites) {
    // The last rows of b are copied to the other half, and multiplied with from there.
    for (int i = thread; i < kTile; i += 128) {
      bug == Bug::writes_without_a_note ? void(b[kTile + i] = b[i])
                                        : gpu::write_for_engines(b[kTile + i], b[i]);
    }
    if constexpr (kWaits) __syncthreads();
    const bool fences = kAllFence || (kFirstFences && thread == 0) ||
                        (bug == Bug::fence_of_last_thread && thread == 127);
    if (fences) gpu::fence_shared_for_engines();
  }
  __syncthreads();
  const auto* const right = kWrites ? b + kTile : b;

  float c[kN / 8][4] = {};
  unsigned operands[kDepth / 16][4];
  for (int step = 0; step < kDepth / 16; ++step) {
    for (int r = 0; r < 4; ++r) {
      const int row = 16 * warp + lane / 4 + r % 2 * 8;
      const auto* const pair = a_in + row * kDepth + 16 * step + lane % 4 * 2 + r / 2 * 8;
      operands[step][r] = pair[0].bits | static_cast<unsigned>(pair[1].bits) << 16;
    }
  }
  if (bug != Bug::no_fence) gpu::begin_products();
  const int steps = bug == Bug::warps_apart && warp == 1 ? kDepth / 16 - 1 : kDepth / 16;
  for (int step = 0; step < steps; ++step) {
    const int skipped = bug == Bug::descriptor_between_rows ? 4 * 64 : 0;
    const auto of_b = kPanels == Panels::of_rows_of_b
                          ? gpu::Descriptor::of_columns(right + skipped + 16 * step * 64, kTile * 2)
                          : gpu::Descriptor::of_rows(right + skipped + 16 * step);
    if constexpr (kRegisters) {
      gpu::multiply_registers<bfloat16, kPanels, kN>(c, operands[step], of_b, step > 0);
    } else {
      gpu::multiply_tiles<bfloat16, kPanels, kN>(c, gpu::Descriptor::of_rows(a + 16 * step), of_b,
                                                 step > 0);
    }
  }
  gpu::commit_products();
  if (bug == Bug::refill_in_flight && thread == 0) {
    gpu::arrive_and_expect(*full, kTile * 2);
    gpu::copy_tile(b, b_map, {0, 0, 0, 0}, *full);
  }
  if (bug == Bug::rewritten_in_flight && thread == 0) gpu::write_for_engines(b[0], b[0]);
  if (bug == Bug::result_written_in_flight) c[3][1] = 1.0f;
  if (bug == Bug::operand_written_in_flight) operands[1][2] += 1;
  if (bug == Bug::result_of_a_group_in_flight) gpu::wait_products<1>(c);
  if (bug != Bug::no_wait_for_products && bug != Bug::no_wait_at_the_end) gpu::wait_products<0>(c);
  for (int n = 0; n < kN / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
      out[row * kN + column] = c[n][i];
    }
  }
  if (bug == Bug::no_wait_for_products) gpu::wait_products<0>(c);
  if (bug == Bug::no_wait_for_tiles) gpu::wait(*full, 0);
}

/// A warpgroup multiplies a tile with itself. A fifth warp's first thread fills it, and again once all
/// have released it: after their products, or before they have waited for them.
template <bool kReleasesEarly>
__global__ void refill(const gpu::TensorMap map) {
  gpu::TileMemory memory;
  auto* const tile = memory.take<bfloat16>(kTile, 1024);
  auto* const full = memory.take<gpu::Barrier>(1);
  auto* const empty = memory.take<gpu::Barrier>(1);
  if (threadIdx.x == 0) {
    gpu::initialize(*full, 1);
    gpu::initialize(*empty, 128);
    gpu::publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 128) {
    for (const unsigned parity : {1u, 0u}) {
      gpu::wait(*empty, parity);
      gpu::arrive_and_expect(*full, kTile * 2);
      gpu::copy_tile(tile, map, {0, 0, 0, 0}, *full);
    }
  }
  if (threadIdx.x >= 128) return;
  gpu::wait(*full, 0);
  float c[kN / 8][4] = {};
  const auto rows = gpu::Descriptor::of_rows(tile);
  gpu::begin_products();
  gpu::multiply_tiles<bfloat16, Panels::of_columns_of_b, kN>(c, rows, rows, false);
  gpu::commit_products();
  if (kReleasesEarly) gpu::arrive(*empty);
  gpu::wait_products<0>(c);
  if (!kReleasesEarly) gpu::arrive(*empty);
  gpu::wait(*full, 1);
}

/// A matrix of small numbers, exact in bf16 and in sums of 64 products.
std::vector<bfloat16> matrix(int seed) {
  std::vector<bfloat16> values;
  for (int i = 0; i < kTile; ++i) {
    values.emplace_back(static_cast<float>((i * 37 + seed * 11) % 17 - 8) / 4.0f);
  }
  return values;
}

gpu::TensorMap map_of(const std::vector<bfloat16>& values, std::int64_t rows = 64) {
  return gpu::tensor_map(values.data(),
                         {.channels = 64,
                          .tokens = rows,
                          .heads = 1,
                          .batch = 1,
                          .token_stride = 128,
                          .head_stride = 128,
                          .batch_stride = 128},
                         64);
}

/// The complaint of the emulator about a launch, or "nothing".
template <typename... Arguments>
std::string said_of(const Arguments&... arguments) {
  try {
    launch(arguments...);
    return "nothing";
  } catch (const emulation::Failure& failure) {
    return failure.what();
  }
}

/// The kernel's results under every schedule, or its complaints.
struct Outcome {
  std::vector<std::vector<float>> results;
  std::vector<std::string> said;
};
template <Bug bug, Panels kPanels = Panels::of_columns_of_b, bool kRegisters = false>
Outcome outcome(std::int64_t rows_of_a = 64) {
  const std::vector<bfloat16> a = matrix(1), b = matrix(2);
  Outcome all;
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<float> out(kTile, -1.0f);
    all.said.push_back(said_of(product<bug, kPanels, kRegisters>, dim3(1), dim3(128), kBytes,
                               map_of(a, rows_of_a), map_of(b), a.data(), out.data()));
    if (all.said.back() == "nothing") all.results.push_back(out);
  }
  return all;
}

template <Bug bug, bool kRegisters = false>
void require_complaint(const std::string& rule) {
  for (const std::string& said : outcome<bug, Panels::of_columns_of_b, kRegisters>().said) {
    REQUIRE_THAT(said, Contains(rule));
  }
}

template <Bug bug>
void require_nan() {
  const Outcome all = outcome<bug>();
  REQUIRE(all.results.size() == std::size(kSchedules));
  for (const auto& result : all.results) {
    REQUIRE(std::any_of(result.begin(), result.end(), [](float x) { return std::isnan(x); }));
  }
}

/// a b^T, or a b; rows of a from `rows` on are zero.
std::vector<float> reference(bool transposed, int rows = 64) {
  const std::vector<bfloat16> a = matrix(1), b = matrix(2);
  std::vector<float> c(kTile, 0.0f);
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < kN; ++n) {
      double sum = 0.0;
      for (int k = 0; k < kDepth; ++k) {
        sum += static_cast<double>(static_cast<float>(a[m * 64 + k])) *
               static_cast<float>(transposed ? b[n * 64 + k] : b[k * 64 + n]);
      }
      c[m * kN + n] = static_cast<float>(sum);
    }
  }
  return c;
}

void require_equal(const Outcome& all, const std::vector<float>& expected) {
  CAPTURE(all.said);
  REQUIRE(all.results.size() == std::size(kSchedules));
  for (const auto& result : all.results) REQUIRE(result == expected);
}

}  // namespace

TEST_CASE("wgmma multiplies tiles that the copy engine loads, from both kinds of panels") {
  require_equal(outcome<Bug::none, Panels::of_columns_of_b>(), reference(true));
  require_equal(outcome<Bug::none, Panels::of_rows_of_b>(), reference(false));
  require_equal(outcome<Bug::none, Panels::of_columns_of_b, true>(), reference(true));
  require_equal(outcome<Bug::none, Panels::of_rows_of_b, true>(), reference(false));
}

TEST_CASE("tiles are zero beyond the tensor's last token") {
  require_equal(outcome<Bug::none>(13), reference(true, 13));
}

TEST_CASE("misuse: tiles, products and results are used before a wait") {
  require_nan<Bug::no_wait_for_tiles>();
  require_nan<Bug::no_wait_for_products>();
  require_complaint<Bug::result_of_a_group_in_flight>(
      "the wait leaves in flight the group of the registers that it names");
  require_complaint<Bug::no_wait_at_the_end>("the block ends with wgmma in flight");
}

TEST_CASE("misuse: a barrier expects other bytes than its copies have") {
  require_complaint<Bug::too_few_bytes>("copies of 16384 bytes at a barrier that expects 16368");
  require_complaint<Bug::too_many_bytes>("a barrier's phase 0 misses 0 arrivals and 16 bytes");
}

TEST_CASE("misuse: ordinary writes are read by wgmma without a fence") {
  require_nan<Bug::ordinary_writes>();
  require_nan<Bug::writes_without_a_note>();
  require_equal(outcome<Bug::ordinary_writes_and_fence>(), reference(true));
  require_equal(outcome<Bug::fence_after_barrier>(), reference(true));
}

TEST_CASE("misuse: one thread fences for the others that write, in any order of threads") {
  require_nan<Bug::fence_of_first_thread>();
  require_nan<Bug::fence_of_last_thread>();
  require_nan<Bug::fence_of_first_thread_after_barrier>();
}

TEST_CASE("misuse: tiles and descriptors that do not fit the swizzle") {
  require_complaint<Bug::tile_between_lines>("no multiple of 1024 bytes");
  require_complaint<Bug::descriptor_between_rows>("begins at the first of eight rows");
  for (const std::string& said :
       outcome<Bug::descriptor_between_rows, Panels::of_rows_of_b>().said) {
    REQUIRE_THAT(said, Contains("begins at a multiple of eight rows"));
  }
}

TEST_CASE("misuse: operands and results of wgmma change while it is in flight") {
  require_complaint<Bug::refill_in_flight>(
      "a tile copy to shared memory that a wgmma in flight still reads");
  require_complaint<Bug::rewritten_in_flight>(
      "a write to shared memory that a wgmma in flight still reads");
  require_complaint<Bug::result_written_in_flight>(
      "registers that a wgmma in flight writes were written");
  require_complaint<Bug::operand_written_in_flight, true>(
      "registers that a wgmma in flight reads were written");
}

TEST_CASE("misuse: a tile is released before the products that read it are complete") {
  const std::vector<bfloat16> values = matrix(1);
  const gpu::TensorMap map = map_of(values);
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    REQUIRE(said_of(refill<false>, dim3(1), dim3(160), kBytes, map) == "nothing");
    if (schedule.threads != emulation::Order::shuffled) continue;
    REQUIRE_THAT(said_of(refill<true>, dim3(1), dim3(160), kBytes, map),
                 Contains("that a wgmma in flight still reads"));
  }
}

TEST_CASE("misuse: wgmma without a fence, and warps of a warpgroup that go apart") {
  require_complaint<Bug::no_fence>("wgmma without a wgmma.fence");
  require_complaint<Bug::warps_apart>("the warps of a warpgroup issued different wgmma");
}

// ---- Barriers and registers ---------------------------------------------------------------------

namespace {

template <typename Kernel, typename... Arguments>
std::string complaint(Kernel kernel, unsigned threads, Arguments... arguments) {
  try {
    launch(kernel, dim3(1), dim3(threads), 1024, arguments...);
  } catch (const emulation::Failure& failure) {
    return failure.what();
  }
  return "nothing";
}

/// The producer hands numbers 0, 1, 2, ... to 64 consumers through one word.
__global__ void hand_over(int count, int* out) {
  gpu::TileMemory memory;
  auto* const full = memory.take<gpu::Barrier>(2);
  gpu::Barrier* const empty = full + 1;
  int* const word = memory.take<int>(1);
  if (threadIdx.x == 0) {
    gpu::initialize(*full, 1);
    gpu::initialize(*empty, 64);
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    const unsigned parity = static_cast<unsigned>(i) % 2;
    if (threadIdx.x == 64) {
      gpu::wait(*empty, parity ^ 1);
      *word = i;
      gpu::arrive(*full);
    } else if (threadIdx.x < 64) {
      gpu::wait(*full, parity);
      out[i * 64 + static_cast<int>(threadIdx.x)] = *word;
      gpu::arrive(*empty);
    }
  }
}

}  // namespace

TEST_CASE("barriers in shared memory hand a word over, phase by phase") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> out(5 * 64, -1);
    launch(hand_over, dim3(1), dim3(96), 1024, 5, out.data());
    for (int i = 0; i < 5 * 64; ++i) REQUIRE(out[static_cast<std::size_t>(i)] == i / 64);
  }
}

namespace {

enum class BarrierBug { unknown, twice, no_count, too_many_arrivals, lonely, unpublished, none };

__global__ void misused_barrier(BarrierBug bug, const gpu::TensorMap map) {
  gpu::TileMemory memory;
  auto* const tile = memory.take<float>(128, 1024);
  auto* const barrier = memory.take<gpu::Barrier>(1);
  if (threadIdx.x != 0) return;
  if (bug != BarrierBug::unknown) gpu::initialize(*barrier, bug == BarrierBug::no_count ? 0 : 2);
  if (bug == BarrierBug::twice) gpu::initialize(*barrier, 2);
  if (bug == BarrierBug::unpublished) gpu::copy_tile(tile, map, {0, 0, 0, 0}, *barrier);
  gpu::arrive(*barrier);
  if (bug == BarrierBug::too_many_arrivals) {
    gpu::arrive_and_expect(*barrier, 16);
    gpu::arrive(*barrier);
  }
  if (bug == BarrierBug::lonely) gpu::wait(*barrier, 0);
}

}  // namespace

TEST_CASE("misuse: barriers in shared memory") {
  const std::vector<bfloat16> a = matrix(1);
  const auto said = [&](BarrierBug bug) { return complaint(misused_barrier, 32, bug, map_of(a)); };
  REQUIRE_THAT(said(BarrierBug::unknown), Contains("a barrier that was not initialized"));
  REQUIRE_THAT(said(BarrierBug::twice), Contains("initialized a second time"));
  REQUIRE_THAT(said(BarrierBug::no_count), Contains("a barrier for no arrivals"));
  REQUIRE_THAT(said(BarrierBug::too_many_arrivals), Contains("more arrivals at a barrier"));
  REQUIRE_THAT(said(BarrierBug::lonely), Contains("phase 0 misses 1 arrivals and 0 bytes"));
  REQUIRE_THAT(said(BarrierBug::unpublished), Contains("not published to the copy engine"));
  REQUIRE(said(BarrierBug::none) == "nothing");
}

namespace {

enum class NamedBug { none, zero, half_a_warp, other_count, left_over, lonely };

__global__ void misused_named_barrier(NamedBug bug, int* out) {
  const bool waits = threadIdx.x < 32;
  TESSERA_SHARED(int, word, );
  if (bug == NamedBug::zero) gpu::named_sync(0, 64);
  if (bug == NamedBug::half_a_warp) gpu::named_sync(1, 48);
  if (waits && bug != NamedBug::left_over) {
    gpu::named_sync(1, 64);
    out[threadIdx.x] = word;
  } else if (!waits && bug != NamedBug::lonely) {
    word = 7;
    gpu::named_arrive(1, bug == NamedBug::other_count ? 96 : 64);
  }
}

/// `warps` of the first warpgroup's lower theirs.
template <int kLess, int kMore>
__global__ void change_registers(unsigned warps) {
  if (threadIdx.x < 128) {
    if (threadIdx.x < 32 * warps) gpu::lower_registers<kLess>();
  } else {
    gpu::raise_registers<kMore>();
  }
}

}  // namespace

TEST_CASE("misuse: named barriers") {
  for (const auto& schedule : kSchedules) {
    const test::ScheduleGuard guard(schedule);
    std::vector<int> out(32, 0);
    const auto said = [&](NamedBug bug) {
      return complaint(misused_named_barrier, 64, bug, out.data());
    };
    REQUIRE(said(NamedBug::none) == "nothing");
    REQUIRE(out == std::vector<int>(32, 7));
    REQUIRE_THAT(said(NamedBug::zero), Contains("a named barrier's number is 1 to 15"));
    REQUIRE_THAT(said(NamedBug::half_a_warp), Contains("a multiple of 32 threads"));
    REQUIRE_THAT(said(NamedBug::other_count), Contains("named barrier 1 is for"));
    REQUIRE_THAT(said(NamedBug::left_over), Contains("the block ends with 32 of 64 threads"));
    REQUIRE_THAT(said(NamedBug::lonely), Contains("wait in bar.sync"));
  }
}

// 384 threads start with 168 registers each. 24 + 2 * 240 are as many, and so are 88 + 2 * 208, with an
// epilogue next to the producer; 32 + 2 * 240 are more.
TEST_CASE("misuse: warpgroups that ask for more registers than there are") {
  REQUIRE(complaint(change_registers<24, 240>, 384, 4u) == "nothing");
  REQUIRE_THAT(complaint(change_registers<32, 240>, 384, 4u), Contains("wait in setmaxnreg.inc"));
  REQUIRE_THAT(complaint(change_registers<24, 160>, 384, 4u),
               Contains("setmaxnreg.inc from 168 to 160 registers"));
  REQUIRE_THAT(complaint(change_registers<176, 240>, 384, 4u),
               Contains("setmaxnreg.dec from 168 to 176 registers"));
  REQUIRE(complaint(change_registers<88, 208>, 384, 4u) == "nothing");
  REQUIRE_THAT(complaint(change_registers<96, 208>, 384, 4u), Contains("wait in setmaxnreg.inc"));
  REQUIRE_THAT(complaint(change_registers<88, 176>, 384, 1u),
               Contains("the warps of a warpgroup have different registers"));
  REQUIRE_THAT(complaint(change_registers<20, 240>, 384, 4u), Contains("a multiple of 8 from 24"));
}

TEST_CASE("tensor_map refuses tensors that the copy engine cannot read") {
  const std::vector<bfloat16> a = matrix(1);
  gpu::TensorShape shape{.channels = 64,
                         .tokens = 64,
                         .heads = 1,
                         .batch = 1,
                         .token_stride = 120,
                         .head_stride = 128,
                         .batch_stride = 128};
  REQUIRE_THROWS_WITH(gpu::tensor_map(a.data(), shape, 64),
                      Contains("cuTensorMapEncodeTiled refuses [1, 64, 1, 64] with strides of 128, "
                               "120 and 128 bytes"));
  shape.token_stride = 128;
  REQUIRE_THROWS_WITH(gpu::tensor_map(a.data() + 1, shape, 64), Contains("refuses"));
  REQUIRE_THROWS_WITH(gpu::tensor_map(a.data(), shape, 257), Contains("refuses"));
}

}  // namespace tessera
