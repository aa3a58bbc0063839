// Kernels and products of the library in a captured CUDA graph: every launch gives the bits that the
// same calls give without one. On a GPU, and on the emulated one.
#include <catch2/catch.hpp>

#include "kernels/gelu/op.h"
#include "kernels/matmul/op.h"
#include "runtime/cuda/status.h"
#include "runtime/cuda/stream.h"
#include "tests/support/precision.h"
#include "tests/support/progress.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using cuda::check_status;

/// The executable graph of the work that `body` gives to the current stream.
template <typename Body>
cudaGraphExec_t capture(const Body& body) {
  const cudaStream_t stream = cuda::native(current_stream());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
               "cudaStreamBeginCapture");
  body();
  check_status(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check_status(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check_status(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return executable;
}

}  // namespace

TEST_CASE("a graph of products and kernels follows its inputs, bit for bit") {
  test::for_every_progress(3, [] {
    const test::Rank rank;
    const Tensor x = Tensor::zeros({16, 32}, DType::bf16);
    const Tensor w = test::normal_tensor({32, 24}, DType::bf16, "weights");
    const Tensor h = test::poisoned({16, 24}, DType::bf16);
    const Tensor y = test::poisoned({16, 24}, DType::bf16);
    const auto forward = [&] {
      matmul(h, x, w);
      gelu_forward(y, h);
    };
    forward();  // finds the algorithm and its workspace
    const cudaGraphExec_t graph = capture(forward);
    for (const char* name : {"first input", "second input"}) {
      x.copy_from(test::normal_tensor({16, 32}, DType::bf16, name));
      check_status(cudaGraphLaunch(graph, cuda::native(current_stream())), "cudaGraphLaunch");
      const auto replayed = test::bytes_of(y);
      forward();
      REQUIRE(test::bytes_of(y) == replayed);
      REQUIRE(test::to_doubles(y).front() != 0.0);
    }
    check_status(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  });
}

}  // namespace tessera
