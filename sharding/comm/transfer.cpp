#include "sharding/comm/transfer.h"

#include <numeric>

namespace tessera {
namespace {

double bytes_of(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), 0.0, [](double sum, const Tensor& tensor) {
    return sum + static_cast<double>(tensor.bytes());
  });
}

int rounds_of(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ? 2 : 1;
}

double received_bytes(const Call& call, int rank, int ranks) {
  const double bytes = bytes_of(call.inputs_or_outputs());
  const double others = (ranks - 1.0) / ranks;
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return others * bytes;
    case Collective::all_reduce:
    case Collective::reduce:
      return 2.0 * others * bytes;
    case Collective::broadcast:
      return bytes;
    case Collective::shift:
      return call.root == 0 ? 0.0 : bytes;
    case Collective::all_to_all:
      return static_cast<double>(bytes_sent_by(call, rank, ranks));
    default:
      return 0.0;
  }
}

}  // namespace

Work transfer_of(const Call& call, int rank, int ranks, int ranks_on_node) {
  Work work{.kind = Work::Kind::transfer, .ranks = ranks, .ranks_on_node = ranks_on_node};
  work.adds = call.collective == Collective::reduce_scatter;
  work.to_one = call.collective == Collective::shift;
  work.from_root = call.collective == Collective::broadcast;
  work.all_reduces = call.collective == Collective::all_reduce;
  if (ranks == 1) return work;
  work.rounds = rounds_of(call.collective);
  work.amount = received_bytes(call, rank, ranks);
  return work;
}

}  // namespace tessera
