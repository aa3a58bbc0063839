#include "sharding/comm/dry/dry.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/dry/group_call.h"
#include "sharding/comm/transfer.h"

namespace tessera {
namespace {

class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(int rank, std::vector<int> nodes, std::vector<int> members, std::string name,
                  const Communicator* parent)
      : Communicator(rank, std::move(nodes), parent, CheckCollectives::first_steps),
        members_(std::move(members)),
        name_(std::move(name)) {}

  void abort(const std::string&) override {}
  std::optional<std::string> aborted() override { return std::nullopt; }
  void agree(const Call&) override {}
  void agree(const CallHistory&) override {}

  std::unique_ptr<Communicator> split(const std::function<int(int)>& color_of) override {
    const int own = color_of(rank());
    std::vector<int> nodes, members;
    int rank_in_child = 0;
    for (int r = 0; r < size(); ++r) {
      if (color_of(r) != own) continue;
      if (r < rank()) ++rank_in_child;
      nodes.push_back(node_of(r));
      members.push_back(members_[static_cast<std::size_t>(r)]);
    }
    // All ranks split in one order, so the number and the color name the group.
    const std::string name = fmt::format("{}/{}:{}", name_, splits_++, own);
    return std::make_unique<DryCommunicator>(rank_in_child, std::move(nodes), std::move(members),
                                             name, this);
  }

 protected:
  std::int64_t perform(const Call& call) override {
    StreamLog& log = *context().stream_log();
    const int entry = log.size();
    log_work(transfer_of(call, rank(), size(), ranks_per_node()));
    if (log.size() > entry) {
      context().state<GroupCalls>().push_back(
          {.entry = entry,
           .group = name_,
           .first = members_.front(),
           .last = members_.back(),
           .name = fmt::format("{} {}", name_of(call.collective), call.label)});
    }
    return bytes_sent_by(call, rank(), size());
  }
  std::unique_ptr<Communicator> split_by(const Call&) override {
    fail("a dry run does not know the other ranks' colors; split by a function of the rank");
  }

 private:
  /// The ranks as the world numbers them.
  const std::vector<int> members_;
  /// A text that no other group of the world has.
  const std::string name_;
  int splits_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_dry_communicator(int rank, std::vector<int> nodes) {
  check(rank >= 0 && rank < static_cast<int>(nodes.size()), "there is no rank {} of {}", rank,
        nodes.size());
  std::vector<int> members(nodes.size());
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<DryCommunicator>(rank, std::move(nodes), std::move(members), "world",
                                           nullptr);
}

}  // namespace tessera
