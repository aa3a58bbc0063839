// TcpRank: a rank's place in a run whose ranks find each other by TCP, as
// torchrun describes it.
#pragma once

#include <string>

namespace tessera {

struct TcpRank {
  /// MASTER_ADDR and MASTER_PORT: the machine of rank 0, and a port of it.
  std::string host;
  int port = 0;
  /// RANK and WORLD_SIZE.
  int rank = 0;
  int ranks = 1;
  /// LOCAL_RANK: the number of the rank on its machine.
  int rank_on_machine = 0;
  /// The launcher's name for the run (TORCHELASTIC_RUN_ID); ranks of another
  /// run are refused.
  std::string run = {};
};

}  // namespace tessera
