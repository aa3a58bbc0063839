#include "autograd/cut.h"

#include <algorithm>
#include <bit>

namespace tessera {

HeldPieces held_pieces(const Cut& cut, std::int64_t ranks, std::int64_t own_parts) {
  HeldPieces held = {.pieces = std::max<std::int64_t>(1, cut.pieces / ranks),
                     .sharers = std::max<std::int64_t>(1, ranks / cut.pieces)};
  // More ranks could share out the uses into so many groups.
  const std::int64_t uses = held.pieces * cut.uses / held.sharers;
  std::int64_t groups = 1;
  while (2 * groups <= own_parts && uses % (2 * groups) == 0) groups *= 2;
  if (std::has_single_bit(static_cast<std::uint64_t>(held.pieces))) {
    held.copies = std::max<std::int64_t>(1, groups / held.pieces);
  }
  return held;
}

}  // namespace tessera
