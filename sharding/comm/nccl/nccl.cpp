#include "sharding/comm/nccl/nccl.h"

#include <algorithm>

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/stream.h"
#include "runtime/describe.h"
#include "sharding/comm/nccl/job.h"

namespace tessera {
namespace {

/// Where sources in the staging buffer begin: at a multiple of this.
constexpr std::int64_t kAlignment = 256;

std::int64_t bytes_of(std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    default:
      return ncclFloat32;
  }
}

/// The same elements of every rank's share of one tensor, counted from the share's beginning. A
/// share may be an element shorter than the longest and end within.
struct Segment {
  std::size_t tensor;
  ElementRange range;
};
using Round = std::vector<Segment>;

class NcclCommunicator final : public Communicator {
 public:
  /// `control`: among the same ranks.
  NcclCommunicator(std::shared_ptr<NcclJob> job, std::shared_ptr<Communicator> control,
                   const NcclOptions& options, const Communicator* parent = nullptr)
      : Communicator(control->rank(), control->size(), parent),
        job_(std::move(job)),
        control_(std::move(control)),
        options_(options),
        comm_(job_->connect(*control_)) {}

  std::unique_ptr<Communicator> split(int color) override {
    return std::make_unique<NcclCommunicator>(job_, control_->split(color), options_, this);
  }

  void abort(const std::string& reason) override {
    control_->abort(reason);
    job_->fail_with(reason);
  }
  std::optional<std::string> aborted() override { return control_->aborted(); }
  void agree(const Call& call) override { control_->agree(call); }

 protected:
  std::int64_t perform(const Call& call) override {
    job_->raise_if_failed();
    control_->agree(call);
    exchange(call);
    return bytes_sent_by(call, rank(), size());
  }

 private:
  using Take = NcclJob::Take;

  static cudaStream_t stream() { return cuda::native(current_stream()); }

  void queue(const Call& call, const std::function<void(const Take&)>& calls) {
    job_->queue(
        comm_, [&] { return describe(call, calls_); }, calls);
  }

  void exchange(const Call& call) {
    switch (call.collective) {
      case Collective::all_gather:
        gather(call);
        break;
      case Collective::broadcast:
        broadcast(call);
        break;
      case Collective::all_to_all:
        swap_shares(call);
        break;
      case Collective::barrier:
        meet(call);
        break;
      case Collective::split:
        break;
      default:
        needs_tree(call) ? reduce_in_tree(call) : reduce(call);
    }
    ++calls_;
  }

  // ---- By NCCL's own collectives

  void gather(const Call& call) {
    queue(call, [&](const Take& take) {
      for (const Tensor& whole : call.outputs) {
        const Tensor own = share(whole, rank());
        if (own.numel() == 0) continue;
        take(ncclAllGather(own.raw(), whole.raw(), own.bytes(), ncclUint8, comm_, stream()));
      }
    });
  }

  void broadcast(const Call& call) {
    queue(call, [&](const Take& take) {
      for (const Tensor& x : call.outputs) {
        if (x.numel() == 0) continue;
        take(ncclBroadcast(x.raw(), x.raw(), x.bytes(), ncclUint8, call.root, comm_, stream()));
      }
    });
  }

  void meet(const Call& call) {
    const CategoryScope category(Category::workspace);
    const Tensor one = Tensor::zeros({1}, DType::f32);
    queue(call, [&](const Take& take) {
      take(ncclAllReduce(one.raw(), one.raw(), 1, ncclFloat32, ncclSum, comm_, stream()));
    });
  }

  void reduce(const Call& call) {
    queue(call, [&](const Take& take) {
      for (std::size_t i = 0; i < call.outputs.size(); ++i) {
        const Tensor& to = call.outputs[i];
        const Tensor& from = call.brought()[i];
        if (from.numel() == 0) continue;
        const auto count = static_cast<std::size_t>(to.numel());
        const ncclDataType_t type = type_of(to.dtype());
        if (call.collective == Collective::reduce_scatter) {
          take(ncclReduceScatter(from.raw(), to.raw(), count, type, ncclSum, comm_, stream()));
        } else if (call.collective == Collective::all_reduce) {
          take(ncclAllReduce(from.raw(), to.raw(), count, type, ncclSum, comm_, stream()));
        } else {
          take(ncclReduce(from.raw(), to.raw(), count, type, ncclSum, call.root, comm_, stream()));
        }
      }
    });
  }

  // ---- By messages

  Tensor share(const Tensor& tensor, int r) const {
    return elements(tensor, share_of(tensor.numel(), r, size()));
  }
  void send(const Take& take, const Tensor& tensor, int to) const {
    if (tensor.numel() == 0) return;
    take(ncclSend(tensor.raw(), tensor.bytes(), ncclUint8, to, comm_, stream()));
  }
  void receive(const Take& take, const Tensor& tensor, int from) const {
    if (tensor.numel() == 0) return;
    take(ncclRecv(tensor.raw(), tensor.bytes(), ncclUint8, from, comm_, stream()));
  }

  void swap_shares(const Call& call) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      share(call.outputs[i], rank()).copy_from(share(call.inputs[i], rank()));
    }
    queue(call, [&](const Take& take) {
      for (std::size_t i = 0; i < call.outputs.size(); ++i) {
        for (int r = 0; r < size(); ++r) {
          if (r == rank()) continue;
          send(take, share(call.inputs[i], r), r);
          receive(take, share(call.outputs[i], r), r);
        }
      }
    });
  }

  bool needs_tree(const Call& call) const {
    if (options_.deterministic || call.reduction == Reduction::maximum) return true;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].dtype() != call.brought()[i].dtype()) return true;
    }
    return false;
  }

  void reduce_in_tree(const Call& call) {
    for (const Round& round : rounds_of(call)) reduce_round(call, round);
    if (call.collective == Collective::reduce_scatter) return;
    const bool to_all = call.collective == Collective::all_reduce;
    queue(call, [&](const Take& take) {
      for (const Tensor& x : call.outputs) {
        for (int r = 0; r < size(); ++r) {
          if (r == rank()) continue;
          if (to_all || r == call.root) send(take, share(x, rank()), r);
          if (to_all || rank() == call.root) receive(take, share(x, r), r);
        }
      }
    });
  }

  /// The shares of all tensors, cut into what the staging buffer holds at a time. Every rank cuts
  /// alike.
  std::vector<Round> rounds_of(const Call& call) const {
    const std::int64_t others = std::max(1, size() - 1);
    const std::int64_t room = std::max(kAlignment, options_.staging_bytes / others);
    std::vector<Round> rounds;
    std::int64_t used = room;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      const Tensor& tensor = call.brought()[i];
      const std::int64_t longest = (tensor.numel() + size() - 1) / size();
      for (std::int64_t begin = 0; begin < longest;) {
        if (room - used < kAlignment) {
          rounds.emplace_back();
          used = 0;
        }
        const std::int64_t fits =
            (room - used) / kAlignment * kAlignment / bytes_of(1, tensor.dtype());
        const ElementRange range = {begin, std::min(longest, begin + fits)};
        rounds.back().push_back({i, range});
        used += slot_bytes(call, rounds.back().back());
        begin = range.end;
      }
    }
    return rounds;
  }

  static std::int64_t slot_bytes(const Call& call, const Segment& segment) {
    const std::int64_t bytes =
        bytes_of(segment.range.count(), call.brought()[segment.tensor].dtype());
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// The segment within rank r's share of a tensor of as many elements as the one brought.
  Tensor piece(const Tensor& brought, int r, const Segment& segment) const {
    const Tensor whole = share(brought, r);
    return whole.slice(std::min(segment.range.begin, whole.numel()),
                       std::min(segment.range.end, whole.numel()));
  }

  /// Every rank sends the others their pieces and reduces its own.
  void reduce_round(const Call& call, const Round& round) {
    std::int64_t bytes = 0;
    for (const Segment& segment : round) bytes += slot_bytes(call, segment) * (size() - 1);
    const CategoryScope category(Category::workspace);
    const Tensor staging = Tensor::empty({bytes}, DType::u8);
    std::vector<Tensors> sources;
    std::int64_t offset = 0;
    for (const Segment& segment : round) {
      const Tensor own = piece(call.brought()[segment.tensor], rank(), segment);
      Tensors& all = sources.emplace_back();
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) {
          all.push_back(own);
          continue;
        }
        all.push_back(Tensor::view(staging.storage(), static_cast<std::size_t>(offset), own.shape(),
                                   own.dtype()));
        offset += slot_bytes(call, segment);
      }
    }
    queue(call, [&](const Take& take) {
      for (std::size_t k = 0; k < round.size(); ++k) {
        for (int r = 0; r < size(); ++r) {
          if (r == rank()) continue;
          send(take, piece(call.brought()[round[k].tensor], r, round[k]), r);
          receive(take, sources[k][static_cast<std::size_t>(r)], r);
        }
      }
    });
    for (std::size_t k = 0; k < round.size(); ++k) {
      tree_reduce(place_of_sum(call, round[k]), sources[k], call.reduction);
    }
  }

  Tensor place_of_sum(const Call& call, const Segment& segment) const {
    const Tensor& output = call.outputs[segment.tensor];
    if (call.collective != Collective::reduce_scatter) return piece(output, rank(), segment);
    return elements(output, segment.range);
  }

  std::shared_ptr<NcclJob> job_;
  std::shared_ptr<Communicator> control_;
  NcclOptions options_;
  ncclComm_t comm_;
  std::uint64_t calls_ = 0;
};

}  // namespace

void run_with_nccl(Communicator& control, const NcclOptions& options,
                   const std::function<void(Communicator&)>& body) {
  const auto job = std::make_shared<NcclJob>(control, options.deadline);
  const std::shared_ptr<Communicator> world(std::shared_ptr<void>(), &control);  // not ours
  try {
    NcclCommunicator communicator(job, world, options);
    body(communicator);
    job->finish();
  } catch (const std::exception& error) {
    // The other ranks hear of it from whoever runs this one. Until they let go, nothing of this
    // rank's may wait for them.
    job->fail_with(error.what());
    throw;
  }
}

}  // namespace tessera
