// Radix sort, least significant digit first.
//
// (Knuth, The Art of Computer Programming 3, 5.2.5.) A pass sorts the words by one digit of 8 bits
// and keeps the order of equal digits. So after the last pass they are sorted by all digits.
//
//   words    | tile 0: 2048 words | tile 1 | ...    one block per tile
//   count    how many words of tile t have digit d: one line of 256 numbers per tile
//   place    a word goes behind (1) all words with smaller digits, and behind the words with its
//            digit (2) in the tiles before, (3) in the warps before, (4) before it in its own warp
//
// A warp has 256 successive words and takes them 32 at a time. So (4) is a running count per digit
// plus the number of lower lanes with the same digit, which 8 votes find. The result does not
// depend on the order in which threads run. The block that counts last makes of every tile's counts
// the sums over the tiles before. Traffic of a pass: 24 bytes a word, little next to the rows that are
// moved by the result, and 5 KB a tile, from L2. Two launches a pass.
#include "kernels/cuda/last_block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/radix_sort.h"
#include "kernels/cuda/reduce.h"
#include "runtime/category.h"

namespace tessera::gpu {
namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kSortThreads = kDigits;  // one thread per digit to add the counts
constexpr int kWarps = kSortThreads / 32;
constexpr int kRounds = 8;  // words of a thread
constexpr int kTile = kSortThreads * kRounds;

__device__ inline unsigned digit_of(std::uint64_t word, int shift) {
  return static_cast<unsigned>(word >> shift) % kDigits;
}

/// Makes of each tile's counts those of all tiles before it, and of line `tiles` those of all. By a block.
__device__ inline void sum_counts(unsigned* counts, unsigned tiles) {
  constexpr unsigned kTogether = 16;  // loads in flight
  unsigned* const of_digit = counts + threadIdx.x;
  unsigned sum = 0;
  for (unsigned first = 0; first <= tiles; first += kTogether) {
    unsigned words[kTogether];
#pragma unroll
    for (unsigned i = 0; i < kTogether; ++i) {
      words[i] = first + i < tiles ? of_digit[std::size_t{first + i} * kDigits] : 0;
    }
#pragma unroll
    for (unsigned i = 0; i < kTogether; ++i) {
      if (first + i <= tiles) of_digit[std::size_t{first + i} * kDigits] = sum;
      sum += words[i];
    }
  }
}

__global__ void __launch_bounds__(kSortThreads)
    count_kernel(unsigned* counts, const std::uint64_t* words, std::int64_t count, int shift,
                 unsigned* ticket) {
  TESSERA_SHARED(unsigned, tally, [kDigits]);
  tally[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTile;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = tile + round * kSortThreads + threadIdx.x;
    if (i < count)
      atomicAdd(&tally[digit_of(words[i], shift)], 1u);  // integers: any order gives the same sum
  }
  __syncthreads();
  counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + threadIdx.x] = tally[threadIdx.x];
  if (is_last_block(ticket, gridDim.x)) sum_counts(counts, gridDim.x);
}

/// The warp's lanes with the same digit as this lane.
__device__ inline unsigned lanes_with(unsigned digit) {
  unsigned lanes = kFullWarp;
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = digit >> bit & 1;
    const unsigned with_bit = __ballot_sync(kFullWarp, set);
    lanes &= set ? with_bit : ~with_bit;
  }
  return lanes;
}

/// The sum of `value` over the threads before this one.
__device__ inline unsigned sum_before(unsigned value) {
  TESSERA_SHARED(unsigned, sums, [kSortThreads]);
  unsigned sum = value;
  for (unsigned distance = 1; distance < kSortThreads; distance *= 2) {
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= distance) sum += sums[threadIdx.x - distance];
    __syncthreads();
  }
  return sum - value;
}

/// Where this block's words with digit threadIdx.x begin in the result: (1) and (2).
__device__ inline unsigned first_place(const unsigned* counts, unsigned tiles) {
  const auto in_tiles_before = [&](unsigned tile) {
    return counts[static_cast<std::int64_t>(tile) * kDigits + threadIdx.x];
  };
  return sum_before(in_tiles_before(tiles)) + in_tiles_before(blockIdx.x);
}

__global__ void __launch_bounds__(kSortThreads)
    place_kernel(std::uint64_t* sorted, const std::uint64_t* words, const unsigned* counts,
                 std::int64_t count, int shift) {
  TESSERA_SHARED(unsigned, places, [kWarps][kDigits]);  // first words so far, then the next place
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < kWarps; ++w) places[w][threadIdx.x] = 0;
  __syncthreads();

  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTile + warp * (32 * kRounds);
  std::uint64_t word[kRounds];
  unsigned rank[kRounds];  // among the warp's words with the same digit: (4)
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = first + round * 32 + lane;
    word[round] = i < count ? words[i] : ~std::uint64_t{0};  // behind the last word: sorts last
    const unsigned digit = digit_of(word[round], shift);
    const unsigned peers = lanes_with(digit);
    rank[round] = places[warp][digit] + __popc(peers & ((1u << lane) - 1));
    __syncwarp();
    if (peers >> lane == 1) places[warp][digit] = rank[round] + 1;  // the last of them
    __syncwarp();
  }

  unsigned place = first_place(counts, gridDim.x);  // its barriers order the counts of all warps
  for (int w = 0; w < kWarps; ++w) {                // (3)
    const unsigned words_of_warp = places[w][threadIdx.x];
    places[w][threadIdx.x] = place;
    place += words_of_warp;
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (first + round * 32 + lane < count) {
      sorted[places[warp][digit_of(word[round], shift)] + rank[round]] = word[round];
    }
  }
}

}  // namespace

Tensor radix_sorted(Tensor words, int first_bit, int last_bit) {
  const std::int64_t count = words.numel();
  if (count == 0) return words;
  const CategoryScope scope(Category::workspace);
  const unsigned tiles = blocks_for(count, kTile, INT32_MAX);
  const Tensor counts = Tensor::empty({tiles + std::int64_t{1}, kDigits}, DType::i32);
  auto* const tally = reinterpret_cast<unsigned*>(counts.raw());
  Tensor other = Tensor::empty(words.shape(), words.dtype());
  for (int shift = first_bit; shift < last_bit; shift += kDigitBits) {
    const auto* const from = reinterpret_cast<const std::uint64_t*>(words.raw());
    auto* const to = reinterpret_cast<std::uint64_t*>(other.raw());
    launch(count_kernel, dim3(tiles), dim3(kSortThreads), 0, stream(), tally, from, count, shift,
           cuda::tickets(current_stream()));
    launch(place_kernel, dim3(tiles), dim3(kSortThreads), 0, stream(), to, from, tally, count,
           shift);
    std::swap(words, other);
  }
  return words;
}

}  // namespace tessera::gpu
