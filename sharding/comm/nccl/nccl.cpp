#include "sharding/comm/nccl/nccl.h"

#include "kernels/cuda/gemm.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/stream.h"
#include "runtime/describe.h"
#include "runtime/foreign_memory.h"
#include "sharding/comm/nccl/job.h"
#include "sharding/comm/tree_exchange.h"

namespace tessera {
namespace {

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

class NcclCommunicator final : public Communicator {
 public:
  /// The world's. `control`: among the same ranks.
  NcclCommunicator(NcclJob& job, Communicator& control, const NcclOptions& options)
      : Communicator(control.rank(), nodes_of(control), nullptr, options.check_collectives),
        job_(job),
        control_(control),
        options_(options),
        comm_(job.connect()) {}
  /// One of the ranks of `parent` with the same color, which are the ranks of `control`.
  NcclCommunicator(const NcclCommunicator& parent, std::unique_ptr<Communicator> control, int color)
      : Communicator(control->rank(), nodes_of(*control), &parent, CheckCollectives::always),
        job_(parent.job_),
        own_control_(std::move(control)),
        control_(*own_control_),
        options_(parent.options_),
        comm_(job_.split(parent.comm_, not_negative(color), parent.rank())) {}

  void abort(const std::string& reason) override { job_.abort_all(reason); }
  std::optional<std::string> aborted() override {
    const auto reason = job_.failure();
    return reason ? reason : control_.aborted();
  }
  Tensor buffer(std::int64_t elements, DType dtype) override {
    const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(dtype));
    if (!options_.windows || size() == 1 || bytes == 0) {
      return Communicator::buffer(elements, dtype);
    }
    control_.agree({.label = fmt::format("a buffer of {} bytes", bytes)});
    const auto window = job_.register_window(comm_, bytes, size());
    const Storage memory =
        borrow_on_device(window->data(), static_cast<std::size_t>(bytes), window, Charged::yes);
    const Tensor x = Tensor::view(memory, 0, {elements}, dtype);
    x.zero();
    return x;
  }

  void agree(const Call& call) override { control_.agree(call); }
  void agree(const CallHistory& history) override { control_.agree(history); }

 protected:
  std::unique_ptr<Communicator> split_by(const Call& call) override {
    return std::make_unique<NcclCommunicator>(*this, control_.split(call.root), call.root);
  }

  std::int64_t perform(const Call& call) override {
    job_.raise_if_failed();
    if (call.compared) control_.agree(call);
    exchange(call);
    return bytes_sent_by(call, rank(), size());
  }

 private:
  using Take = NcclJob::Take;

  static std::vector<int> nodes_of(const Communicator& control) {
    std::vector<int> nodes;
    for (int r = 0; r < control.size(); ++r) nodes.push_back(control.node_of(r));
    return nodes;
  }

  /// A number of its own for each color: NCCL's are not negative.
  static int not_negative(int color) { return color < 0 ? -2 * color - 1 : 2 * color; }

  static cudaStream_t stream() { return cuda::native(current_stream()); }

  void queue(const Call& call, const std::function<void(const Take&)>& calls) {
    job_.queue(
        comm_, [&] { return describe(call); }, calls);
  }

  void exchange(const Call& call) {
    switch (call.collective) {
      case Collective::all_gather:
        return gather(call);
      case Collective::broadcast:
        return broadcast(call);
      case Collective::all_to_all:
      case Collective::shift:
        return exchange_messages(call);
      case Collective::barrier:
        return barrier_of(call);
      case Collective::split:
        return;
      default:
        needs_tree(call) ? reduce_in_tree(call) : reduce(call);
    }
  }

  // ---- By NCCL's own collectives

  void gather(const Call& call) {
    queue(call, [&](const Take& take) {
      for (const Tensor& whole : call.outputs) {
        const Tensor own = share_of(whole, rank(), size());
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

  void barrier_of(const Call& call) {
    const CategoryScope category(Category::workspace);
    const Tensor one = Tensor::zeros({1}, DType::f32);
    queue(call, [&](const Take& take) {
      take(ncclAllReduce(one.raw(), one.raw(), 1, ncclFloat32, ncclSum, comm_, stream()));
    });
  }

  void reduce(const Call& call) {
    // f32 that are not negative order as their bits do, with NaN on top. As floating-point numbers
    // NCCL's maximum would lose NaN.
    const bool maximum = call.reduction == Reduction::maximum;
    const ncclRedOp_t operation = maximum ? ncclMax : ncclSum;
    queue(call, [&](const Take& take) {
      for (std::size_t i = 0; i < call.outputs.size(); ++i) {
        const Tensor& to = call.outputs[i];
        const Tensor& from = call.inputs_or_outputs()[i];
        if (from.numel() == 0) continue;
        const auto count = static_cast<std::size_t>(to.numel());
        const ncclDataType_t type = maximum ? ncclUint32 : type_of(to.dtype());
        if (call.collective == Collective::reduce_scatter) {
          take(ncclReduceScatter(from.raw(), to.raw(), count, type, operation, comm_, stream()));
        } else if (call.collective == Collective::all_reduce) {
          take(ncclAllReduce(from.raw(), to.raw(), count, type, operation, comm_, stream()));
        } else {
          take(
              ncclReduce(from.raw(), to.raw(), count, type, operation, call.root, comm_, stream()));
        }
      }
    });
  }

  // ---- By messages

  /// Messages of one call as a group of NCCL's sends and receives. Stream order does the waiting.
  class NcclTransport final : public Transport {
   public:
    NcclTransport(NcclCommunicator& here, const Call& call) : here_(here), call_(call) {}

    void start(int /*slot*/, const Messages& messages) override {
      here_.queue(call_, [&](const Take& take) {
        for (const Message& one : messages.sent) here_.send(take, one);
        for (const Message& one : messages.received) here_.receive(take, one);
      });
    }
    void finish(int /*slot*/) override {}

   private:
    NcclCommunicator& here_;
    const Call& call_;
  };

  void send(const Take& take, const Message& message) const {
    const auto& [peer, tensor] = message;
    if (tensor.numel() == 0) return;
    take(ncclSend(tensor.raw(), tensor.bytes(), ncclUint8, peer, comm_, stream()));
  }
  void receive(const Take& take, const Message& message) const {
    const auto& [peer, tensor] = message;
    if (tensor.numel() == 0) return;
    take(ncclRecv(tensor.raw(), tensor.bytes(), ncclUint8, peer, comm_, stream()));
  }

  void exchange_messages(const Call& call) {
    NcclTransport transport(*this, call);
    const bool shifts = call.collective == Collective::shift;
    (shifts ? shift_to_one : swap_parts)(call, rank(), size(), transport);
  }

  bool needs_tree(const Call& call) const {
    if (call.reduction == Reduction::maximum) {
      for (const Tensor& tensor : call.inputs_or_outputs()) {
        check(tensor.dtype() == DType::f32, "a maximum over ranks takes f32, not {}",
              describe(tensor));
      }
      return false;
    }
    if (options_.deterministic) return true;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].dtype() != call.inputs_or_outputs()[i].dtype()) return true;
    }
    return false;
  }

  void reduce_in_tree(const Call& call) {
    NcclTransport transport(*this, call);
    if (const Windows windows = windows_of(call.inputs_or_outputs()); !windows.empty()) {
      reduce_from_windows(call, windows);
    } else {
      reduce_messages(call, transport);
    }
    if (call.collective == Collective::reduce_scatter) return;
    if (call.collective == Collective::all_reduce && shares_are_equal(call)) return gather(call);
    send_sums(call, rank(), size(), transport);
  }

  void reduce_messages(const Call& call, Transport& transport) {
    const auto allocate = [](std::int64_t bytes) {
      const CategoryScope category(Category::workspace);
      return Tensor::empty({bytes}, DType::u8);
    };
    reduce_shares(call, NodeGrid::for_reduction(call, rank(), size(), ranks_per_node()),
                  {.bytes = options_.staging_bytes, .halves = false, .allocate = allocate},
                  transport);
  }

  using Windows = std::vector<std::shared_ptr<const NcclWindow>>;

  /// The window of each source, if this rank reads those of all ranks. Otherwise none.
  Windows windows_of(const Tensors& sources) const {
    Windows windows;
    for (const Tensor& source : sources) {
      windows.push_back(options_.windows ? job_.window_of(comm_, source) : nullptr);
      if (windows.back() == nullptr || !windows.back()->reaches_peers()) return {};
    }
    return windows;
  }

  /// The second barrier lets the ranks change their sources. An all_reduce gathers the sums instead: a rank has
  /// another's share once that rank has read the sources.
  void reduce_from_windows(const Call& call, const Windows& windows) {
    barrier_of(call);
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      Tensors sources;
      for (int r = 0; r < size(); ++r) {
        const Tensor whole = windows[i]->at_peer(r, call.inputs_or_outputs()[i]);
        sources.push_back(share_of(whole, rank(), size()));
      }
      const Tensor& output = call.outputs[i];
      const bool is_part = call.collective == Collective::reduce_scatter;
      tree_reduce(is_part ? output : share_of(output, rank(), size()), sources, call.reduction);
    }
    if (call.collective != Collective::all_reduce) barrier_of(call);
  }

  bool shares_are_equal(const Call& call) const {
    for (const Tensor& x : call.outputs) {
      if (x.numel() % size() != 0) return false;
    }
    return true;
  }

  NcclJob& job_;
  std::unique_ptr<Communicator> own_control_;  // if this one was split off
  Communicator& control_;
  NcclOptions options_;
  ncclComm_t comm_;
};

}  // namespace

void run_with_nccl(Communicator& control, const NcclOptions& options,
                   const std::function<void(Communicator&)>& body) {
  NcclJob job(control, options.deadline, options.ctas, options.windows);
  // cuBLASLt chooses other algorithms for fewer multiprocessors. With `deterministic` the bits would then
  // depend on the number of ranks.
  const bool overlaps = control.size() > 1 && !options.deterministic;
  cuda::held_multiprocessors() = overlaps ? options.ctas : 0;
  try {
    NcclCommunicator communicator(job, control, options);
    body(communicator);
    job.finish();
  } catch (const std::exception& error) {
    // The launcher aborts the other ranks. Abort our NCCL communicators now, so that nothing here
    // blocks on them.
    job.fail_with(error.what());
    throw;
  }
}

}  // namespace tessera
