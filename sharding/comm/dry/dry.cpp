#include "sharding/comm/dry/dry.h"

#include <utility>

#include "runtime/check.h"
#include "sharding/comm/transfer.h"

namespace tessera {
namespace {

class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(int rank, std::vector<int> nodes, const Communicator* parent = nullptr)
      : Communicator(rank, std::move(nodes), parent, CheckCollectives::first_steps) {}

  void abort(const std::string&) override {}
  std::optional<std::string> aborted() override { return std::nullopt; }
  void agree(const Call&) override {}
  void agree(const CallHistory&) override {}

  std::unique_ptr<Communicator> split(const std::function<int(int)>& color_of) override {
    std::vector<int> nodes;
    int rank_in_child = 0;
    for (int r = 0; r < size(); ++r) {
      if (color_of(r) != color_of(rank())) continue;
      if (r < rank()) ++rank_in_child;
      nodes.push_back(node_of(r));
    }
    return std::make_unique<DryCommunicator>(rank_in_child, std::move(nodes), this);
  }

 protected:
  std::int64_t perform(const Call& call) override {
    log_work(transfer_of(call, rank(), size(), ranks_per_node()));
    return bytes_sent_by(call, rank(), size());
  }
  std::unique_ptr<Communicator> split_by(const Call&) override {
    fail("a dry run does not know the other ranks' colors; split by a function of the rank");
  }
};

}  // namespace

std::unique_ptr<Communicator> make_dry_communicator(int rank, std::vector<int> nodes) {
  check(rank >= 0 && rank < static_cast<int>(nodes.size()), "there is no rank {} of {}", rank,
        nodes.size());
  return std::make_unique<DryCommunicator>(rank, std::move(nodes));
}

}  // namespace tessera
