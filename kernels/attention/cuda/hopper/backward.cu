// Attention's backward pass on Hopper's tensor cores (wgmma, sm_90a), for bf16 and f16 and heads of 64 or
// 128: dQ, dK and dV in one launch.
//
// The launch has two parts, dQ (query_gradient.h) and dK with dV (key_value_gradient.h), which do not
// depend on each other. Both read q, k, v and dO. In one launch a section of heads (BackwardSchedule)
// has both parts before the next section's begin, so the second reading comes from the second-level
// cache. Traffic: 2 bytes an element of q, k, v, dO, dq, dk and dv, and 8 bytes a query.
#include "kernels/attention/cuda/hopper/key_value_gradient.h"
#include "kernels/attention/cuda/hopper/query_gradient.h"
#include "kernels/attention/cuda/launchers.h"
#include "kernels/cuda/early_launch.h"

namespace tessera::cuda::attention {
namespace {

/// kCut: there is a first_key, which may cut a block's rows into pieces.
template <typename T, int kHeadSize, bool kCut>
__global__ void __launch_bounds__(gpu::kRoleThreads, 1)
    backward_hopper_kernel(const BackwardArguments<T> x, const __grid_constant__ BackwardMaps maps,
                           const BackwardSchedule schedule, const gpu::WorkQueue queue) {
  if constexpr (gpu::kHasHopper) {
    const BackwardMemory<T, kHeadSize> memory(gpu::TileMemory{});
    const query_gradient::Memory<T, kHeadSize> of_queries(memory);
    const key_value_gradient::Memory<T, kHeadSize> of_keys(memory);
    const auto produce = [&] {
      unsigned tile = 0;
      queue.produce(memory.numbers, [&](unsigned number, unsigned block) {
        schedule.visit(
            number,
            [&](unsigned number) {
              key_value_gradient::produce<T, kHeadSize, kCut>(x, maps, schedule.keys, number,
                                                              of_keys, block, tile);
            },
            [&](unsigned number) {
              query_gradient::produce<T, kHeadSize, kCut>(x, maps, schedule.queries, number,
                                                          of_queries, block, tile);
            });
      });
    };
    const auto consume = [&] {
      unsigned tile = 0;
      queue.consume(memory.numbers, [&](unsigned number, unsigned block) {
        schedule.visit(
            number,
            [&](unsigned number) {
              key_value_gradient::consume<T, kHeadSize, kCut>(x, schedule.keys, number, of_keys,
                                                              block, tile);
            },
            [&](unsigned number) {
              query_gradient::consume<T, kHeadSize, kCut>(x, schedule.queries, number, of_queries,
                                                          block, tile);
            });
      });
    };
    // The loops over pieces take registers of the producer's.
    gpu::run_roles<kCut ? 40 : 24>(produce, consume);
  }
}

template <typename T, int kHeadSize, bool kCut>
void launch(const BackwardCall& call, const Tensor& statistics) {
  const BackwardArguments<T> arguments(call, statistics);
  const BackwardSchedule schedule(arguments.extents, sizeof(T));
  const BackwardMaps maps{map_of(call.q, kRowsOfBlock), map_of(call.d_o, kRowsOfBlock),
                          map_of(call.k, kRowsOfBlock), map_of(call.v, kRowsOfBlock)};
  gpu::launch_early(backward_hopper_kernel<T, kHeadSize, kCut>, persistent_grid(schedule.count()),
                    dim3(gpu::kRoleThreads), BackwardMemory<T, kHeadSize>::kBytes, gpu::stream(),
                    arguments, maps, schedule, work_queue(schedule.count()));
}

}  // namespace

void backward_hopper(const BackwardCall& call, const Tensor& statistics) {
  visit_hopper_heads(call.q, [&](auto size, auto element) {
    constexpr int kHeadSize = decltype(size)::kValue;
    using T = decltype(element);
    call.runs.queries.defined() ? launch<T, kHeadSize, true>(call, statistics)
                                : launch<T, kHeadSize, false>(call, statistics);
  });
}

}  // namespace tessera::cuda::attention
