#include "runtime/cuda/fault.h"

#include <fmt/format.h>

namespace tessera::cuda {

std::string describe(FaultWord word) {
  const FaultWord position = word >> 8;
  switch (static_cast<Fault>(word & 0xff)) {
    case Fault::embedding_id:
      return fmt::format("embedding: the id at position {} is not a row of the table", position);
    case Fault::cross_entropy_target:
      return fmt::format(
          "cross_entropy: the target at position {} is neither a class nor ignore_index", position);
    case Fault::rope_position:
      return fmt::format("rope: the token at position {} of the batch stands outside the table",
                         position);
  }
  return fmt::format("a kernel left the word {:#x}, which names no fault", word);
}

}  // namespace tessera::cuda
