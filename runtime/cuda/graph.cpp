#include "runtime/cuda/graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/context.h"
#include "runtime/cuda/status.h"
#include "runtime/cuda/stream.h"

namespace tessera::cuda {
namespace {

/// `to` goes on after all work of `from`.
void order(const Stream& from, const Stream& to) {
  to.wait(from.record());
}

/// A capture of a stream, given up unless end() was called.
class StreamCapture {
 public:
  explicit StreamCapture(cudaStream_t stream) : stream_(stream) {
    // Relaxed: the capture may allocate. Other threads are not concerned in any mode but the global.
    check_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                 "cudaStreamBeginCapture");
  }
  ~StreamCapture() {
    cudaGraph_t graph = nullptr;
    if (stream_ == nullptr) return;
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // the capture was invalid: the error that ended it is on its way
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    check_status(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph),
                 "cudaStreamEndCapture");
    return graph;
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

Graph::Graph(std::vector<Stream> sides, const std::function<void()>& queue)
    : sides_(std::move(sides)) {
  for (const Stream& side : sides_) side.synchronize();
  context().compute_stream().synchronize();
  device_pool_ = std::make_unique<GraphPool>(context().shared_allocator());
  host_pool_ = std::make_unique<GraphPool>(context().shared_host_allocator());
  record(queue);
  device_pool_->stop();
  host_pool_->stop();
  const cudaError_t status = cudaGraphInstantiate(&executable_, graph_, 0);
  if (status != cudaSuccess) cudaGraphDestroy(graph_);
  check_status(status, "cudaGraphInstantiate");
}

void Graph::record(const std::function<void()>& queue) {
  const CaptureScope scope(host_work_);
  const Stream& compute = context().compute_stream();
  StreamCapture capture(native(compute));
  for (const Stream& side : sides_) order(compute, side);
  queue();
  for (const Stream& side : sides_) order(side, compute);
  graph_ = capture.end();
}

Graph::~Graph() {
  cudaStreamSynchronize(native(context().compute_stream()));
  cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

void Graph::launch() {
  const Stream& compute = context().compute_stream();
  for (const std::function<void()>& work : host_work_.before) work();
  if (std::exchange(launched_, true)) {
    device_pool_->count_again();
    host_pool_->count_again();
  }
  for (const Stream& side : sides_) order(side, compute);
  check_status(cudaGraphLaunch(executable_, native(compute)), "cudaGraphLaunch");
  for (const Stream& side : sides_) order(compute, side);
  for (const std::function<void()>& work : host_work_.after) work();
}

std::size_t Graph::nodes() const {
  std::size_t count = 0;
  check_status(cudaGraphGetNodes(graph_, nullptr, &count), "cudaGraphGetNodes");
  return count;
}

}  // namespace tessera::cuda
