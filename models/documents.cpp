#include "models/documents.h"

#include <vector>

#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {

Tensor document_starts(std::span<const std::int32_t> ids, std::int64_t sequence_length,
                       std::int32_t first_token) {
  const auto count = static_cast<std::int64_t>(ids.size());
  const Tensor starts =
      Tensor::empty_on_host({count / sequence_length, sequence_length}, DType::i32);
  std::int32_t* const of_token = starts.data<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t place = i % sequence_length;
    const bool starts_here = place == 0 || ids[static_cast<std::size_t>(i)] == first_token;
    of_token[i] = starts_here ? static_cast<std::int32_t>(place) : of_token[i - 1];
  }
  return starts;
}

Tensor document_positions(const Tensor& starts) {
  check(starts.dtype() == DType::i32 && starts.rank() == 2,
        "the documents' starts are {}; expected i32 [B, T]", describe(starts));
  std::vector<std::int32_t> positions = starts.to_vector<std::int32_t>();
  std::int32_t before = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto place = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % starts.size(1));
    const std::int32_t start = positions[i];
    check(start == place || (place > 0 && start == before),
          "row {}: the token at {} has its document's start at {}; expected {}, where the document "
          "before it starts, or {}",
          static_cast<std::int64_t>(i) / starts.size(1), place, start, before, place);
    before = start;
    positions[i] = place - start;
  }
  return Tensor::from(positions, starts.shape());
}

}  // namespace tessera
