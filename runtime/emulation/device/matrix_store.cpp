#include "runtime/emulation/device/matrix_store.h"

#include "runtime/emulation/device/block.h"

namespace tessera::emulation {
namespace {

struct Store {
  std::uint64_t* row;
  const unsigned* fragment;
  const void* address;
};

void gather(void* const* lanes) {
  const auto* const* stores = reinterpret_cast<const Store* const*>(lanes);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const Store* const* rows = stores + 8 * matrix;
    block.statistics.bank_conflicts += turns_of(rows) - 1;
    for (int i = 0; i < 8; ++i) {
      const auto word = [&](int j) { return std::uint64_t{stores[4 * i + j]->fragment[matrix]}; };
      rows[i]->row[0] = word(0) | word(1) << 32;
      rows[i]->row[1] = word(2) | word(3) << 32;
    }
  }
}

}  // namespace

void gather_matrix_row(std::uint64_t (&row)[2], const unsigned (&fragment)[4], const void* address,
                       const Site& site) {
  constexpr unsigned kFullWarp = ~0u;
  Store operands{row, fragment, address};
  block.collective(kFullWarp, "stmatrix", &operands, &gather, false, site);
}

}  // namespace tessera::emulation
