#include "tools/train/gather.h"

#include <span>

#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

std::vector<std::vector<std::int64_t>> gather_numbers(const std::vector<std::int64_t>& numbers,
                                                      Communicator& world) {
  const StreamGuard on_this_stream(communication_stream());
  const auto count = static_cast<std::int64_t>(numbers.size());
  const Tensor all = Tensor::zeros({world.size() * count}, DType::i64);
  const auto part = [&](int rank) { return all.slice(rank * count, (rank + 1) * count); };
  part(world.rank()).copy_from(Tensor::from(numbers, {count}));
  world.all_gather({all}, communication_stream(), "numbers").synchronize();
  std::vector<std::vector<std::int64_t>> rows;
  for (int rank = 0; rank < world.size(); ++rank) {
    rows.push_back(part(rank).to_vector<std::int64_t>());
  }
  return rows;
}

std::vector<std::string> gather_texts(const std::string& text, Communicator& world) {
  const StreamGuard on_this_stream(communication_stream());
  const auto sizes = gather_numbers({static_cast<std::int64_t>(text.size())}, world);
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Shape shape = {sizes[static_cast<std::size_t>(rank)].front()};
    const std::span own(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    const Tensor bytes =
        rank == world.rank() ? Tensor::from(own, shape) : Tensor::empty(shape, DType::u8);
    world.broadcast({bytes}, rank, communication_stream(), "text").synchronize();
    if (world.rank() > 0) continue;
    const auto arrived = bytes.to_vector<std::uint8_t>();
    texts.emplace_back(arrived.begin(), arrived.end());
  }
  return texts;
}

}  // namespace tessera
