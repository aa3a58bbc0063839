#include "tools/train/gather_texts.h"

#include <span>

#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

std::vector<std::string> gather_texts(const std::string& text, Communicator& world) {
  const StreamGuard on_this_stream(communication_stream());
  const Stream& stream = current_stream();
  const Tensor sizes = Tensor::zeros({world.size()}, DType::i64);
  const std::vector size = {static_cast<std::int64_t>(text.size())};
  sizes.slice(world.rank(), world.rank() + 1).copy_from(Tensor::from(size, {1}));
  world.all_gather({sizes}, stream, "sizes of texts").synchronize();
  const auto size_of_rank = sizes.to_vector<std::int64_t>();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Shape shape = {size_of_rank[static_cast<std::size_t>(rank)]};
    const std::span own(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const Tensor bytes =
        rank == world.rank() ? Tensor::from(own, shape) : Tensor::empty(shape, DType::u8);
    world.broadcast({bytes}, rank, stream, "text").synchronize();
    if (world.rank() > 0) continue;
    const auto arrived = bytes.to_vector<std::uint8_t>();
    texts.emplace_back(arrived.begin(), arrived.end());
  }
  return texts;
}

}  // namespace tessera
