#include "sharding/comm/mpi/mpi.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/describe.h"
#include "sharding/comm/devices.h"
#include "sharding/comm/mpi/transfers.h"
#include "sharding/comm/pin.h"
#include "sharding/comm/tree_exchange.h"
#include "sharding/comm/world.h"

namespace tessera {
namespace {

class MpiTransport final : public Transport {
 public:
  using Describe = std::function<std::string()>;
  MpiTransport(MpiJob& job, MPI_Comm comm, const std::vector<int>& members, Describe call)
      : transfers_{Transfers(job, comm, members), Transfers(job, comm, members),
                   Transfers(job, comm, members)},
        call_(std::move(call)) {}

  void start(int slot, const Messages& messages) override {
    Transfers& transfers = transfers_[static_cast<std::size_t>(slot)];
    for (const Message& one : messages.received) transfers.receive(one.peer, one.tensor);
    for (const Message& one : messages.sent) transfers.send(one.peer, one.tensor);
  }
  void finish(int slot) override { transfers_[static_cast<std::size_t>(slot)].wait(call_); }

  std::int64_t bytes_sent() const {
    std::int64_t bytes = 0;
    for (const Transfers& transfers : transfers_) bytes += transfers.bytes_sent();
    return bytes;
  }

 private:
  std::array<Transfers, kSlots> transfers_;
  Describe call_;
};

class MpiCommunicator final : public Communicator {
 public:
  /// `members`: the processes of the group by their rank in the job. Owns `comm` from here on.
  MpiCommunicator(MpiJob& job, MPI_Comm comm, std::vector<int> members, int rank,
                  const Communicator* parent, CheckCollectives check)
      : Communicator(rank, nodes_of(job, members), parent, check),
        job_(job),
        comm_(comm),
        members_(std::move(members)) {}

  void abort(const std::string& reason) override { job_.abort(reason); }
  std::optional<std::string> aborted() override { return job_.failure(); }
  void agree(const Call& call) override {
    guarded(call, [&] { return compare(call).size(); });
  }
  void agree(const CallHistory& history) override {
    const Call call{.collective = Collective::barrier, .label = "the step's calls"};
    guarded(call, [&] { return compare(call, history); });
  }

 protected:
  std::unique_ptr<Communicator> split_by(const Call& call) override {
    return guarded(call, [&]() -> std::unique_ptr<Communicator> {
      const std::vector<Header> headers = compare(call);
      std::vector<int> colors;
      std::vector<int> members;
      int rank_in_child = 0;
      for (int r = 0; r < size(); ++r) {
        colors.push_back(static_cast<int>(headers[r].root));
        if (colors.back() != call.root) continue;
        if (r < rank()) ++rank_in_child;
        members.push_back(members_[r]);
      }
      // All ranks are here now, so this does not wait. MPI's colors must not be negative: number
      // them.
      std::sort(colors.begin(), colors.end());
      const auto number =
          std::lower_bound(colors.begin(), colors.end(), call.root) - colors.begin();
      MPI_Comm child = MPI_COMM_NULL;
      check_mpi(MPI_Comm_split(comm_, static_cast<int>(number), rank(), &child), "splitting");
      return std::make_unique<MpiCommunicator>(job_, child, std::move(members), rank_in_child, this,
                                               CheckCollectives::always);
    });
  }

  std::int64_t perform(const Call& call) override {
    return guarded(call, [&] {
      if (call.compared) compare(call);
      const bool on_gpu = !call.outputs.empty() && !call.outputs[0].device().is_cpu();
      return on_gpu ? exchange_on_host(call) : exchange(call);
    });
  }

 private:
  /// A rank's side of a call, as the others see it.
  struct Header {
    std::uint64_t fingerprint;
    std::int64_t root;
  };
  /// A description that travels; longer ones are cut off.
  using Text = std::array<char, 256>;

  static std::vector<int> nodes_of(const MpiJob& job, const std::vector<int>& members) {
    std::vector<int> nodes;
    for (const int member : members) nodes.push_back(job.node_of(member));
    return nodes;
  }

  /// Runs `work`. An exception in it ends the job.
  template <typename Work>
  std::invoke_result_t<Work> guarded(const Call& call, const Work& work) {
    try {
      job_.raise_if_failed();
      return work();
    } catch (const std::exception& error) {
      job_.keep(call, staging_);
      job_.abort_for(error);
      throw;
    }
  }

  static std::string describe_wait(const Call& call) {
    return call.compared ? describe(call)
                         : describe(call) +
                               " (sharding.check_collectives: always names the calls "
                               "of both sides)";
  }

  // ---- Agreement

  /// Every rank gets every other rank's value. Not counted as sent.
  template <typename Value>
  std::vector<Value> exchange_with_all(const Call& call, const Value& own) {
    std::vector<Value> values(static_cast<std::size_t>(size()));
    values[rank()] = own;
    Transfers all(job_, comm_, members_, Transfers::kComparison);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      all.receive(r, &values[r], sizeof(Value));
      all.send(r, &values[rank()], sizeof(Value));
    }
    all.wait([&] { return describe(call); });
    return values;
  }

  std::vector<Header> compare(const Call& call) {
    const std::vector<Header> headers =
        exchange_with_all(call, Header{fingerprint(call), call.root});
    std::vector<std::uint64_t> fingerprints;
    for (const Header& header : headers) fingerprints.push_back(header.fingerprint);
    const int other = first_disagreement(fingerprints);
    if (other != 0) fail_for_two(call, other, describe(call));
    if (!call.sent_counts.empty()) compare_counts(call);
    return headers;
  }

  /// Every rank learns how much the others send to it.
  void compare_counts(const Call& call) {
    std::vector<std::int64_t> coming = call.received_counts;
    Transfers all(job_, comm_, members_, Transfers::kComparison);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      all.receive(r, &coming[r], sizeof(std::int64_t));
      all.send(r, &call.sent_counts[r], sizeof(std::int64_t));
    }
    all.wait([&] { return describe(call); });
    for (int r = 0; r < size(); ++r) {
      check_counts(members_[r], coming[r], members_[rank()], call.received_counts[r], call);
    }
  }

  bool compare(const Call& call, const CallHistory& history) {
    const int other = first_disagreement(exchange_with_all(call, history.hash()));
    if (other == 0) return true;
    const auto summaries = exchange_with_all(call, history.summary());
    const auto number = CallHistory::first_difference(summaries[0], summaries[other]);
    fail_for_two(call, other, history.description(number));
  }

  /// All ranks are here. They exchange `own`, the descriptions of their calls, and raise Error.
  [[noreturn]] void fail_for_two(const Call& call, int other, const std::string& own) {
    Text text = {};
    own.copy(text.data(), text.size() - 1);
    const std::vector<Text> texts = exchange_with_all(call, text);
    fail_disagreement(members_[0], texts[0].data(), members_[other], texts[other].data());
  }

  // ---- Moving tensors

  /// The same for tensors in a GPU's memory, by way of the host's, so that MPI needs no support for
  /// GPUs. Waits for the GPU before and after.
  std::int64_t exchange_on_host(const Call& call) {
    const CategoryScope category(Category::workspace);
    const auto to_host = [](const Tensors& tensors, bool copies) {
      Tensors on_host;
      for (const Tensor& tensor : tensors) {
        on_host.push_back(Tensor::empty_on_host(tensor.shape(), tensor.dtype()));
        if (copies) on_host.back().copy_from(tensor);
      }
      return on_host;
    };
    Call on_host = call;
    on_host.inputs = to_host(call.inputs, true);
    on_host.outputs = to_host(call.outputs, call.inputs.empty());
    current_stream().synchronize();
    std::int64_t sent = 0;
    try {
      sent = exchange(on_host);
    } catch (...) {
      job_.keep(on_host, staging_);  // MPI may still write to them
      throw;
    }
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      call.outputs[i].copy_from(on_host.outputs[i]);
    }
    current_stream().synchronize();
    return sent;
  }

  /// Moves the tensors of a call; returns the bytes sent.
  std::int64_t exchange(const Call& call) {
    MpiTransport transport(job_, comm_, members_, [&] { return describe_wait(call); });
    const auto reduce = [&] {
      reduce_shares(call, NodeGrid::for_reduction(call, rank(), size(), ranks_per_node()),
                    staging(), transport);
    };
    const auto gather = [&] {
      gather_shares(call, NodeGrid::for_gather(call, rank(), size(), ranks_per_node()), transport);
    };
    switch (call.collective) {
      case Collective::all_gather:
        gather();
        break;
      case Collective::reduce_scatter:
        reduce();
        break;
      case Collective::all_reduce:
        reduce();
        gather();
        break;
      case Collective::reduce:
        reduce();
        send_sums(call, rank(), size(), transport);
        break;
      case Collective::broadcast:
        send_from_root(call, transport);
        break;
      case Collective::all_to_all:
        swap_parts(call, rank(), size(), transport);
        break;
      case Collective::shift:
        shift_to_one(call, rank(), size(), transport);
        break;
      default:
        break;
    }
    return transport.bytes_sent();
  }

  void send_from_root(const Call& call, MpiTransport& transport) const {
    Messages messages;
    for (const Tensor& tensor : call.outputs) {
      if (rank() != call.root) {
        messages.received.push_back({call.root, tensor});
        continue;
      }
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) messages.sent.push_back({r, tensor});
      }
    }
    transport.start(0, messages);
    transport.finish(0);
  }

  Staging staging() {
    return {.bytes = kMpiStagingBytes, .halves = true, .allocate = [this](std::int64_t bytes) {
              const auto most = std::max(bytes, kMpiStagingBytes);
              if (!staging_.defined() || staging_.numel() < most) {
                const CategoryScope category(Category::workspace);
                staging_ = Tensor::empty_on_host({most}, DType::u8);
              }
              return staging_;
            }};
  }

  MpiJob& job_;
  /// Left for MPI_Finalize to free: when this rank fails, others may still be sending to it here.
  MPI_Comm comm_;
  std::vector<int> members_;
  Tensor staging_;
};

/// Runs the body as this process's rank. An exception in it ends the job.
void run_body(MpiJob& job, const WorldOptions& options,
              const std::function<void(Communicator&)>& body) {
  check(options.ranks == 0 || job.size() == options.ranks,
        "the launcher has started {} processes, but MPI finds {}: the launcher belongs to another "
        "MPI than this program was built with",
        options.ranks, job.size());
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "making the world's communicator");
  std::vector<int> members(static_cast<std::size_t>(job.size()));
  std::iota(members.begin(), members.end(), 0);
  MpiCommunicator communicator(job, world, members, job.rank(), nullptr, options.check_collectives);
  RankContext context({.device = device_of_rank(options.device, job.rank_on_machine()),
                       .rank = job.rank(),
                       .world_size = job.size(),
                       .threads = options.threads > 0 ? options.threads : job.threads_per_rank(),
                       .seed = options.seed});
  const ContextGuard guard(context);
  try {
    run_pinned(options.pin, communicator, body);
  } catch (const std::exception& error) {
    // Before the context waits for its streams, which may be inside a collective.
    job.abort_for(error);
  }
}

}  // namespace

void run_mpi_rank(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  MpiJob job(options.deadline, options.ranks_per_node);
  try {
    run_body(job, options, body);
  } catch (const std::exception& error) {
    job.abort_for(error);
  }
  const std::optional<MpiJob::Failure> failure = job.end();
  if (!failure) return;
  if (failure->rank == job.rank()) throw Error(failure->reason);
  fail_late(options, failure->reason);
}

}  // namespace tessera
