#include "tools/train/gather.h"

#include <span>
#include <utility>

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

namespace {

/// The text of rank `root`, on the ranks that have use for it.
std::string broadcast_text(const std::string& text, std::int64_t size, int root, bool wanted,
                           Communicator& world) {
  const std::span own(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  const Tensor bytes =
      root == world.rank() ? Tensor::from(own, {size}) : Tensor::empty({size}, DType::u8);
  world.broadcast({bytes}, root, communication_stream(), "text").synchronize();
  if (!wanted) return {};
  const auto arrived = bytes.to_vector<std::uint8_t>();
  return {arrived.begin(), arrived.end()};
}

}  // namespace

std::string text_of_first_rank(const std::string& text, Communicator& world) {
  const StreamGuard on_this_stream(communication_stream());
  const auto sizes = gather_numbers({static_cast<std::int64_t>(text.size())}, world);
  return broadcast_text(text, sizes[0].front(), 0, /*wanted=*/true, world);
}

std::vector<std::string> gather_texts(const std::string& text, Communicator& world) {
  const StreamGuard on_this_stream(communication_stream());
  const auto sizes = gather_numbers({static_cast<std::int64_t>(text.size())}, world);
  const bool wanted = world.rank() == 0;
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t size = sizes[static_cast<std::size_t>(rank)].front();
    std::string arrived = broadcast_text(text, size, rank, wanted, world);
    if (wanted) texts.push_back(std::move(arrived));
  }
  return texts;
}

}  // namespace tessera
