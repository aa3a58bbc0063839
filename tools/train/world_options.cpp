#include "tools/train/world_options.h"

namespace tessera {

WorldOptions world_options(const Config& config) {
  return {.ranks = static_cast<int>(config.runtime.ranks),
          .device = first_device(config.runtime),
          .threads = static_cast<int>(config.runtime.threads),
          .pin = config.runtime.pin,
          .seed = static_cast<std::uint64_t>(config.train.seed),
          .deadline = std::chrono::seconds(config.sharding.timeout),
          .communicator = config.sharding.communicator,
          .deterministic = config.sharding.deterministic || config.train.elastic > 0,
          .check_collectives = config.sharding.check_collectives,
          .nccl_ctas = static_cast<int>(config.sharding.nccl_ctas),
          .nccl_windows = config.sharding.nccl_windows};
}

}  // namespace tessera
