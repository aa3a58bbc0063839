#include "sharding/comm/tcp/tcp.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/hash.h"
#include "runtime/threads.h"
#include "sharding/comm/devices.h"
#include "sharding/comm/pin.h"
#include "sharding/comm/tcp/job.h"

namespace tessera {
namespace {

/// A rank's side of a call, as it travels.
struct Side {
  std::uint64_t fingerprint = 0;
  std::int64_t color = 0;
  std::string description;
  std::vector<std::int64_t> sent_counts;

  std::string bytes() const {
    std::string bytes = tcp::bytes_of(fingerprint) + tcp::bytes_of(color) +
                        tcp::bytes_of(static_cast<std::uint32_t>(description.size())) + description;
    for (const std::int64_t count : sent_counts) bytes += tcp::bytes_of(count);
    return bytes;
  }
  static Side from(std::string_view bytes) {
    Side side;
    side.fingerprint = tcp::take<std::uint64_t>(bytes);
    side.color = tcp::take<std::int64_t>(bytes);
    const auto length = tcp::take<std::uint32_t>(bytes);
    tcp::check_length(bytes, length);
    side.description = std::string(bytes.substr(0, length));
    bytes.remove_prefix(length);
    side.sent_counts = tcp::take_all<std::int64_t>(bytes);
    return side;
  }
};

class TcpCommunicator final : public Communicator {
 public:
  /// `group`: the same number on all its ranks, and another than those of other
  /// groups. `members`: their ranks in the job.
  TcpCommunicator(TcpJob& job, std::uint64_t group, std::vector<int> members,
                  std::vector<int> nodes, int rank, const Communicator* parent,
                  CheckCollectives check)
      : Communicator(rank, std::move(nodes), parent, check),
        job_(job),
        group_(group),
        members_(std::move(members)) {}

  void abort(const std::string& reason) override { job_.abort(reason); }
  std::optional<std::string> aborted() override { return job_.failure(); }
  void agree(const Call& call) override { compare(call); }
  void agree(const CallHistory& history) override {
    const Call call{.collective = Collective::barrier, .label = "the step's calls"};
    const auto hashes = gather(call, tcp::bytes_of(history.hash()));
    std::vector<std::uint64_t> values;
    for (std::string_view hash : hashes) values.push_back(tcp::take<std::uint64_t>(hash));
    const int other = first_disagreement(values);
    if (other == 0) return;
    const auto summaries = gather(call, tcp::bytes_of(history.summary()));
    const auto summary_of = [&](int rank) {
      std::string_view bytes = summaries[static_cast<std::size_t>(rank)];
      return tcp::take<CallHistory::Summary>(bytes);
    };
    const auto number = CallHistory::first_difference(summary_of(0), summary_of(other));
    const auto texts = gather(call, history.description(number));
    fail_disagreement(members_[0], texts[0], members_[other],
                      texts[static_cast<std::size_t>(other)]);
  }

 protected:
  std::unique_ptr<Communicator> split_by(const Call& call) override {
    const std::vector<Side> sides = compare(call);
    std::vector<int> members, nodes;
    int rank_in_child = 0;
    for (int r = 0; r < size(); ++r) {
      if (sides[r].color != call.root) continue;
      if (r < rank()) ++rank_in_child;
      members.push_back(members_[r]);
      nodes.push_back(node_of(r));
    }
    Fnv1a child;
    child.add(group_);
    child.add(number_);
    child.add(static_cast<std::uint64_t>(call.root));
    return std::make_unique<TcpCommunicator>(job_, child.value(), std::move(members),
                                             std::move(nodes), rank_in_child, this,
                                             CheckCollectives::always);
  }

  std::int64_t perform(const Call& call) override {
    if (call.compared) compare(call);
    switch (call.collective) {
      case Collective::barrier:
        gather(call, "");
        break;
      case Collective::broadcast:
        broadcast(call);
        break;
      default:
        fail("{}: ranks without MPI exchange tensors by NCCL, on GPUs", describe(call));
    }
    return bytes_sent_by(call, rank(), size());
  }

 private:
  std::vector<std::string> gather(const Call& call, const std::string& own) {
    const tcp::Gather key = {
        .key = {.group = group_, .number = number_++}, .rank = rank(), .ranks = size()};
    return job_.gather(
        key, own, [&] { return describe(call); }, members_);
  }

  std::vector<Side> compare(const Call& call) {
    const Side own = {fingerprint(call), call.root, describe(call), call.sent_counts};
    std::vector<Side> sides;
    std::vector<std::uint64_t> fingerprints;
    for (const std::string& bytes : gather(call, own.bytes())) {
      sides.push_back(Side::from(bytes));
      fingerprints.push_back(sides.back().fingerprint);
    }
    const int other = first_disagreement(fingerprints);
    if (other != 0) {
      fail_disagreement(members_[0], sides[0].description, members_[other],
                        sides[other].description);
    }
    if (!call.sent_counts.empty()) {
      for (int r = 0; r < size(); ++r) {
        check_counts(members_[r], sides[r].sent_counts.at(static_cast<std::size_t>(rank())),
                     members_[rank()], call.received_counts[r], call);
      }
    }
    return sides;
  }

  /// By way of host memory.
  void broadcast(const Call& call) {
    for (const Tensor& tensor : call.outputs) {
      check(tensor.bytes() <= kLongestTcpBroadcast,
            "{}: ranks without MPI exchange tensors by NCCL, on GPUs", describe(call));
      const Tensor host = Tensor::empty_on_host(tensor.shape(), tensor.dtype());
      std::string own;
      if (rank() == call.root) {
        host.copy_from(tensor);
        current_stream().synchronize();
        own.assign(reinterpret_cast<const char*>(host.raw()), host.bytes());
      }
      const std::string bytes = gather(call, own)[static_cast<std::size_t>(call.root)];
      check(bytes.size() == host.bytes(), "{}: rank {} sent {} bytes", describe(call), call.root,
            bytes.size());
      std::memcpy(host.raw(), bytes.data(), bytes.size());
      tensor.copy_from(host);
      current_stream().synchronize();
    }
  }

  TcpJob& job_;
  const std::uint64_t group_;
  const std::vector<int> members_;
  /// Exchanges so far. All ranks make them in one order.
  std::uint64_t number_ = 0;
};

int threads_per_rank(const std::vector<int>& nodes, int rank) {
  const auto ranks_here = static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[rank]));
  return std::max(1, available_threads() / ranks_here);
}

void run_body(TcpJob& job, const TcpRank& own, const WorldOptions& options,
              const std::function<void(Communicator&)>& body) {
  job.raise_if_failed();
  std::vector<int> nodes = job.nodes();
  const int threads = options.threads > 0 ? options.threads : threads_per_rank(nodes, own.rank);
  if (options.ranks_per_node > 0) {
    for (int r = 0; r < own.ranks; ++r) nodes[r] = r / options.ranks_per_node;
  }
  std::vector<int> members(static_cast<std::size_t>(own.ranks));
  std::iota(members.begin(), members.end(), 0);
  TcpCommunicator communicator(job, 0, members, nodes, own.rank, nullptr,
                               options.check_collectives);
  RankContext context({.device = device_of_rank(options.device, own.rank_on_machine),
                       .rank = own.rank,
                       .world_size = own.ranks,
                       .threads = threads,
                       .seed = options.seed});
  const ContextGuard guard(context);
  try {
    run_pinned(options.pin, communicator, body);
  } catch (const std::exception& error) {
    // Before the context waits for its streams, which may be inside a
    // collective.
    job.abort(failure_of(own.rank, own.ranks, error.what()));
  }
}

}  // namespace

void run_tcp_rank(const TcpRank& own, const WorldOptions& options,
                  const std::function<void(Communicator&)>& body) {
  std::optional<TcpJob::Failure> failure;
  {
    TcpJob job(own, options.deadline);
    try {
      run_body(job, own, options, body);
    } catch (const std::exception& error) {
      job.abort(failure_of(own.rank, own.ranks, error.what()));
    }
    failure = job.end();
  }
  if (!failure) return;
  if (failure->rank == own.rank) throw Error(failure->reason);
  throw FailedElsewhere(failure->reason);
}

}  // namespace tessera
