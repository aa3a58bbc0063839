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

namespace tessera {
namespace {

/// Where sources in the staging buffer begin: at a multiple of this.
constexpr std::int64_t kAlignment = 64;

/// Some elements of one tensor of a call.
struct Segment {
  std::size_t tensor;
  ElementRange range;
};

/// Segments whose sources are received together into one half of the staging buffer.
struct Batch {
  std::vector<Segment> segments;
  Tensors received;  // of segment i from the k-th other rank: number i * others + k
};

class MpiCommunicator final : public Communicator {
 public:
  /// `members`: the processes of the group by their rank in the job. Takes `comm` over.
  MpiCommunicator(MpiJob& job, MPI_Comm comm, std::vector<int> members, int rank,
                  const Communicator* parent = nullptr)
      : Communicator(rank, static_cast<int>(members.size()), parent),
        job_(job),
        comm_(comm),
        members_(std::move(members)) {
    check(others() * kAlignment <= kMpiStagingBytes / 2,
          "{} ranks are more than {} bytes can serve", size(), kMpiStagingBytes);
  }

  void abort(const std::string& reason) override { job_.abort(reason); }
  std::optional<std::string> aborted() override { return job_.failure(); }
  void agree(const Call& call) override {
    guarded(call, [&] { return compare(call).size(); });
  }

  std::unique_ptr<Communicator> split(int color) override {
    const Call call{.collective = Collective::split, .root = color};
    return guarded(call, [&]() -> std::unique_ptr<Communicator> {
      const std::vector<Header> headers = compare(call);
      std::vector<int> colors;
      std::vector<int> members;
      int rank_in_child = 0;
      for (int r = 0; r < size(); ++r) {
        colors.push_back(static_cast<int>(headers[r].root));
        if (colors.back() != color) continue;
        if (r < rank()) ++rank_in_child;
        members.push_back(members_[r]);
      }
      // All are here now, so this waits for nobody. MPI's colors must not be negative: number them.
      std::sort(colors.begin(), colors.end());
      const auto number = std::lower_bound(colors.begin(), colors.end(), color) - colors.begin();
      MPI_Comm child = MPI_COMM_NULL;
      check_mpi(MPI_Comm_split(comm_, static_cast<int>(number), rank(), &child), "splitting");
      return std::make_unique<MpiCommunicator>(job_, child, std::move(members), rank_in_child,
                                               this);
    });
  }

 protected:
  std::int64_t perform(const Call& call) override {
    return guarded(call, [&] {
      compare(call);
      const bool on_gpu = !call.outputs.empty() && !call.outputs[0].device().is_cpu();
      return on_gpu ? exchange_on_host(call) : exchange(call);
    });
  }

 private:
  /// What ranks tell each other of a call before they make it.
  struct Header {
    std::uint64_t fingerprint;
    std::int64_t root;
  };

  /// Runs `work`. What it raises ends the job.
  template <typename Work>
  std::invoke_result_t<Work> guarded(const Call& call, const Work& work) {
    try {
      job_.raise_if_failed();
      auto result = work();
      ++calls_;
      return result;
    } catch (const std::exception& error) {
      job_.keep(call, staging_);
      job_.abort_for(error);
      throw;
    }
  }

  Transfers transfers() { return Transfers(job_, comm_, members_); }

  void wait(Transfers& transfers, const Call& call) {
    transfers.wait([&] { return describe(call, calls_); });
  }

  std::vector<Header> compare(const Call& call) {
    std::vector<Header> headers(static_cast<std::size_t>(size()));
    headers[rank()] = {fingerprint(call, calls_), call.root};
    exchange_with_all(
        call, [&](int r) { return &headers[r]; }, sizeof(Header));
    std::vector<std::uint64_t> fingerprints;
    for (const Header& header : headers) fingerprints.push_back(header.fingerprint);
    const int other = first_disagreement(fingerprints);
    if (other != 0) tell_disagreement(call, other);
    return headers;
  }

  /// Every rank has seen the disagreement and takes part, so that each can tell both sides.
  [[noreturn]] void tell_disagreement(const Call& call, int other) {
    using Text = std::array<char, 256>;
    std::vector<Text> texts(static_cast<std::size_t>(size()));
    const std::string mine = describe(call, calls_).substr(0, sizeof(Text) - 1);
    std::copy(mine.begin(), mine.end(), texts[rank()].begin());
    exchange_with_all(
        call, [&](int r) { return texts[r].data(); }, sizeof(Text));
    fail_disagreement(members_[0], texts[0].data(), members_[other], texts[other].data());
  }

  /// Every rank gets every other's `bytes` bytes at place(its rank).
  template <typename Place>
  void exchange_with_all(const Call& call, const Place& place, std::size_t bytes) {
    Transfers all = transfers();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      all.receive(r, place(r), static_cast<std::int64_t>(bytes));
      all.send(r, place(rank()), static_cast<std::int64_t>(bytes));
    }
    wait(all, call);
  }

  /// The same for tensors in a GPU's memory, by way of the host's: MPI need know nothing of GPUs.
  /// Waits for the GPU, there and back.
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
    switch (call.collective) {
      case Collective::all_gather:
        return gather_shares(call);
      case Collective::reduce_scatter:
        return reduce_shares(call);
      case Collective::all_reduce:
        return reduce_shares(call) + gather_shares(call);
      case Collective::reduce:
        return reduce_shares(call) + send_shares_to_root(call);
      case Collective::broadcast:
        return broadcast_from_root(call);
      case Collective::all_to_all:
        return swap_shares(call);
      default:
        return 0;
    }
  }

  /// The elements of a tensor that are rank r's share.
  Tensor share(const Tensor& tensor, int r) const {
    return elements(tensor, share_of(tensor.numel(), r, size()));
  }

  std::int64_t gather_shares(const Call& call) {
    Transfers all = transfers();
    for (const Tensor& tensor : call.outputs) {
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        all.receive(r, share(tensor, r));
        all.send(r, share(tensor, rank()));
      }
    }
    wait(all, call);
    return all.bytes_sent();
  }

  std::int64_t swap_shares(const Call& call) {
    Transfers all = transfers();
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        all.receive(r, share(call.outputs[i], r));
        all.send(r, share(call.inputs[i], r));
      }
      share(call.outputs[i], rank()).copy_from(share(call.inputs[i], rank()));
    }
    wait(all, call);
    return all.bytes_sent();
  }

  std::int64_t broadcast_from_root(const Call& call) {
    Transfers all = transfers();
    for (const Tensor& tensor : call.outputs) {
      if (rank() != call.root) {
        all.receive(call.root, tensor);
        continue;
      }
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) all.send(r, tensor);
      }
    }
    wait(all, call);
    return all.bytes_sent();
  }

  std::int64_t send_shares_to_root(const Call& call) {
    Transfers all = transfers();
    for (const Tensor& tensor : call.outputs) {
      if (rank() != call.root) {
        all.send(call.root, share(tensor, rank()));
        continue;
      }
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) all.receive(r, share(tensor, r));
      }
    }
    wait(all, call);
    return all.bytes_sent();
  }

  /// Sends every other rank its share of all tensors, segment by segment, and reduces this rank's:
  /// while one half of the staging buffer is summed, the other is filled.
  std::int64_t reduce_shares(const Call& call) {
    Transfers sends = transfers();
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      for (const Segment& segment : segments_of(call, r)) {
        sends.send(r, elements(call.brought()[segment.tensor], segment.range));
      }
    }
    const std::vector<Segment> mine = segments_of(call, rank());
    std::size_t next = 0;
    Transfers receives[2] = {transfers(), transfers()};
    std::array<Batch, 2> batches;
    batches[0] = receive_batch(call, mine, next, 0, receives[0]);
    for (int half = 0; !batches[half].segments.empty(); half = 1 - half) {
      batches[1 - half] = receive_batch(call, mine, next, 1 - half, receives[1 - half]);
      wait(receives[half], call);
      for (std::size_t i = 0; i < batches[half].segments.size(); ++i) {
        reduce_segment(call, batches[half], i);
      }
    }
    wait(sends, call);
    return sends.bytes_sent();
  }

  std::int64_t others() const { return size() - 1; }

  const Tensor& staging() {
    if (!staging_.defined()) {
      const CategoryScope category(Category::workspace);
      staging_ = Tensor::empty_on_host({kMpiStagingBytes}, DType::u8);
    }
    return staging_;
  }

  /// Bytes of one segment at most: all other ranks' fit one half of the staging buffer.
  std::int64_t segment_bytes() const {
    const std::int64_t bytes = kMpiStagingBytes / 2 / std::max<std::int64_t>(1, others());
    return bytes / kAlignment * kAlignment;
  }

  /// Rank r's shares of all tensors, cut into segments. Sender and receiver cut alike.
  std::vector<Segment> segments_of(const Call& call, int r) const {
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < call.brought().size(); ++i) {
      const Tensor& tensor = call.brought()[i];
      const auto step = segment_bytes() / static_cast<std::int64_t>(size_of(tensor.dtype()));
      const ElementRange share = share_of(tensor.numel(), r, size());
      for (std::int64_t begin = share.begin; begin < share.end; begin += step) {
        segments.push_back({i, {begin, std::min(share.end, begin + step)}});
      }
    }
    return segments;
  }

  /// Starts to receive as many segments, from `next` on, as one half of the staging buffer holds.
  Batch receive_batch(const Call& call, const std::vector<Segment>& segments, std::size_t& next,
                      int half, Transfers& receives) {
    Batch batch;
    std::int64_t offset = half * kMpiStagingBytes / 2;
    const std::int64_t end = offset + kMpiStagingBytes / 2;
    for (; next < segments.size(); ++next) {
      const Segment& segment = segments[next];
      const DType dtype = call.brought()[segment.tensor].dtype();
      const std::int64_t count = segment.range.count();
      const std::int64_t used = count * static_cast<std::int64_t>(size_of(dtype));
      const std::int64_t bytes = (used + kAlignment - 1) / kAlignment * kAlignment;
      if (offset + bytes * others() > end) break;
      batch.segments.push_back(segment);
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        batch.received.push_back(
            Tensor::view(staging().storage(), static_cast<std::size_t>(offset), {count}, dtype));
        receives.receive(r, batch.received.back());
        offset += bytes;
      }
    }
    return batch;
  }

  /// The sum over ranks of one segment, in rank order, goes to its place in the output.
  void reduce_segment(const Call& call, const Batch& batch, std::size_t i) const {
    const Segment& segment = batch.segments[i];
    const Tensor& brought = call.brought()[segment.tensor];
    const auto first = batch.received.begin() + static_cast<std::ptrdiff_t>(i) * others();
    Tensors sources(first, first + others());
    sources.insert(sources.begin() + rank(), elements(brought, segment.range));
    const bool scattered = call.collective == Collective::reduce_scatter;
    const std::int64_t origin = scattered ? share_of(brought.numel(), rank(), size()).begin : 0;
    const ElementRange place = {segment.range.begin - origin, segment.range.end - origin};
    tree_reduce(elements(call.outputs[segment.tensor], place), sources, call.reduction);
  }

  MpiJob& job_;
  /// Left for MPI_Finalize to free: when this rank fails, others may still be sending to it here.
  MPI_Comm comm_;
  std::vector<int> members_;
  Tensor staging_;
  std::uint64_t calls_ = 0;
};

/// Runs the body as this process's rank; what it raises ends the job.
void run_body(MpiJob& job, const WorldOptions& options,
              const std::function<void(Communicator&)>& body) {
  check(
      job.size() == options.ranks,
      "mpirun has started {} ranks, but MPI knows {}: it belongs to another MPI than this program "
      "was built with",
      options.ranks, job.size());
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "making the world's communicator");
  std::vector<int> members(static_cast<std::size_t>(job.size()));
  std::iota(members.begin(), members.end(), 0);
  MpiCommunicator communicator(job, world, members, job.rank());
  RankContext context({.device = device_of_rank(options.device, job.rank_on_machine()),
                       .rank = job.rank(),
                       .world_size = job.size(),
                       .threads = options.threads > 0 ? options.threads : job.threads_per_rank(),
                       .seed = options.seed});
  const ContextGuard guard(context);
  try {
    body(communicator);
  } catch (const std::exception& error) {
    // Before the context waits for its streams, which may be inside a collective.
    job.abort_for(error);
  }
}

}  // namespace

void run_mpi_rank(const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  MpiJob job(options.deadline);
  try {
    run_body(job, options, body);
  } catch (const std::exception& error) {
    job.abort_for(error);
  }
  const std::optional<MpiJob::Failure> failure = job.end();
  if (!failure) return;
  if (failure->rank == job.rank()) throw Error(failure->reason);
  fail_in_silence();
}

}  // namespace tessera
