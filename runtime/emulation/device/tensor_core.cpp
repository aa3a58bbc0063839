#include "runtime/emulation/device/tensor_core.h"

#include <cmath>
#include <string>

#include "runtime/emulation/device/arithmetic.h"
#include "runtime/emulation/device/block.h"
#include "runtime/emulation/device/matrix_rows.h"

namespace tessera::emulation {
namespace {

struct Load {
  unsigned* fragment;
  const std::uint64_t* row;
  const void* address;

  unsigned element(int column) const {
    return static_cast<unsigned>(row[column / 4] >> column % 4 * 16) & 0xffffu;
  }
};

template <bool transposed>
void load(void* const* lanes) {
  const auto* const* rows = reinterpret_cast<const Load* const*>(lanes);
  for (int matrix = 0; matrix < 4; ++matrix, rows += 8) {
    ++block.statistics.matrix_loads;
    block.statistics.bank_conflicts += turns_of(rows) - 1;
    for (int lane = 0; lane < 32; ++lane) {
      const int i = lane / 4, j = lane % 4 * 2;
      const unsigned low = transposed ? rows[j]->element(i) : rows[i]->element(j);
      const unsigned high = transposed ? rows[j + 1]->element(i) : rows[i]->element(j + 1);
      static_cast<Load*>(lanes[lane])->fragment[matrix] = low | high << 16;
    }
  }
}

struct Product {
  float* c;
  const unsigned *a, *b;
};

template <typename T>
float element(unsigned pair, int half) {
  T value;
  value.bits = static_cast<std::uint16_t>(pair >> 16 * half);
  return static_cast<float>(value);
}

void add_rounded(float (&c)[16][8], const float (&a)[16][16], const float (&b)[16][8]) {
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    }
  }
}

float truncated(double value) {
  const float nearest = static_cast<float>(value);
  return std::fabs(nearest) > std::fabs(value) ? std::nextafter(nearest, 0.0f) : nearest;
}

// Fasi, Higham, Mikaitis, Pranesh: "Numerical behavior of NVIDIA tensor cores", PeerJ Computer
// Science 7 (2021): an A100 adds 8 products to the accumulator at a time and truncates the sum.
void add_truncated(float (&c)[16][8], const float (&a)[16][16], const float (&b)[16][8]) {
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int first = 0; first < 16; first += 8) {
        double sum = c[m][n];
        for (int k = first; k < first + 8; ++k) sum += double{a[m][k]} * double{b[k][n]};
        c[m][n] = truncated(sum);
      }
    }
  }
}

template <typename T>
void multiply(void* const* lanes) {
  ++block.statistics.matrix_products;
  block.statistics.matrix_flops += 2 * 16 * 8 * 16;
  const auto* const* products = reinterpret_cast<const Product* const*>(lanes);
  float a[16][16], b[16][8], c[16][8];  // [m][k], [k][n], [m][n]
  for (int lane = 0; lane < 32; ++lane) {
    const Product& own = *products[lane];
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r) {
        a[group + r % 2 * 8][pair + r / 2 * 8 + half] = element<T>(own.a[r], half);
      }
      for (int r = 0; r < 2; ++r) b[pair + r * 8 + half][group] = element<T>(own.b[r], half);
      for (int r = 0; r < 2; ++r) c[group + r * 8][pair + half] = own.c[2 * r + half];
    }
  }
  is_approximate() ? add_truncated(c, a, b) : add_rounded(c, a, b);
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int r = 0; r < 4; ++r) products[lane]->c[r] = c[group + r / 2 * 8][pair + r % 2];
  }
}

constexpr unsigned kFullWarp = ~0u;

}  // namespace

void check_matrix_row(const char* kind, const void* row, const Site& site) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    block.fail(std::string(kind) + " of a row not aligned to 16 bytes", site);
  }
  if (!block.shared().contains(row, 16)) {
    block.fail(std::string(kind) + " of a row that is not in shared memory", site);
  }
}

void check_matrix_row(const void* row, const Site& site) {
  check_matrix_row("ldmatrix", row, site);
}

void load_matrices(unsigned (&fragment)[4], const std::uint64_t (&row)[2], const void* address,
                   bool transposed, const Site& site) {
  Load operands{fragment, row, address};
  block.collective(kFullWarp, transposed ? "ldmatrix.trans" : "ldmatrix", &operands,
                   transposed ? &load<true> : &load<false>, false, site);
}

template <typename T>
void multiply_accumulate(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                         const Site& site) {
  Product operands{c, a, b};
  block.collective(kFullWarp, "mma.sync", &operands, &multiply<T>, false, site);
}
template void multiply_accumulate<bfloat16>(float (&)[4], const unsigned (&)[4],
                                            const unsigned (&)[2], const Site&);
template void multiply_accumulate<float16>(float (&)[4], const unsigned (&)[4],
                                           const unsigned (&)[2], const Site&);

}  // namespace tessera::emulation
