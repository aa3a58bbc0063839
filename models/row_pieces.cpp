#include "models/row_pieces.h"

#include <vector>

#include "kernels/attention/first_key.h"
#include "runtime/check.h"

namespace tessera {

Tensor positions_in_pieces(const Shape& pieces, const Tensor& starts, const TokenCut& cut) {
  const std::int64_t tokens = pieces[1], batch = pieces[0] / cut.pieces();
  std::vector<std::int32_t> positions(static_cast<std::size_t>(pieces.numel()));
  if (starts.defined()) positions = starts.to_vector<std::int32_t>();  // the host waits for a GPU
  for (std::int64_t i = 0; i < std::ssize(positions); ++i) {
    const std::int64_t piece = i / (batch * tokens);
    const std::int64_t place = cut.place_of(piece) * tokens + i % tokens;
    std::int32_t& position = positions[static_cast<std::size_t>(i)];
    check(0 <= position && position <= place,
          "the token at {} of a row has its document's start at {}; expected 0 to {}", place,
          position, place);
    position = static_cast<std::int32_t>(place) - position;
  }
  return Tensor::from(positions, pieces);
}

Tensor first_keys_in_pieces(const Tensor& starts, const TokenCut& cut, std::int64_t chunk,
                            std::int64_t window) {
  const std::int64_t tokens = starts.size(1), batch = starts.size(0) / cut.pieces();
  const Tensor keys = Tensor::empty(starts.shape(), DType::i32);
  for (std::int64_t j = 0; j < cut.pieces(); ++j) {
    keys.slice(j * batch, (j + 1) * batch)
        .copy_from(first_keys(starts.slice(j * batch, (j + 1) * batch), chunk,
                              cut.place_of(j) * tokens, window));
  }
  return keys;
}

}  // namespace tessera
