#include "tools/train/gather_texts.h"

#include <cstring>

#include "sharding/comm/stream.h"

namespace tessera {

std::vector<std::string> gather_texts(const std::string& text, Communicator& world) {
  const Stream& stream = communication_stream();
  const Tensor sizes = Tensor::zeros({world.size()}, DType::i64);
  sizes.data<std::int64_t>()[world.rank()] = static_cast<std::int64_t>(text.size());
  world.all_gather({sizes}, stream, "sizes of texts").synchronize();
  std::vector<std::string> texts;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Tensor bytes = Tensor::empty({sizes.data<std::int64_t>()[rank]}, DType::u8);
    if (rank == world.rank()) std::memcpy(bytes.raw(), text.data(), text.size());
    world.broadcast({bytes}, rank, stream, "text").synchronize();
    if (world.rank() > 0) continue;
    texts.emplace_back(reinterpret_cast<const char*>(bytes.raw()), bytes.bytes());
  }
  return texts;
}

}  // namespace tessera
