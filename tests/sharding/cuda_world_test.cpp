// run_world on GPUs: ranks that are threads or processes, and their communicator.
#include <atomic>
#include <catch2/catch.hpp>

#include "sharding/comm/world.h"
#include "tests/sharding/nccl_ranks.h"
#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/nccl_model.h"
#endif

namespace tessera {

using test::compute;
using test::Floats;
using test::tensor_of;

#if defined(TESSERA_EMULATED)
using test::with_gpus;

TEST_CASE("run_world: ranks with a GPU each should be processes, and NCCL takes no threads") {
  const emulation::DeviceOptionsGuard guard(with_gpus(4));
  const emulation::NcclModelGuard model({.takes_threads = false});  // as on GPUs
  const auto should = [](int ranks, CommunicatorKind kind, const Device& device) {
    return are_processes({.ranks = ranks, .device = device, .communicator = kind});
  };
  const Device gpu = test::device();
  CHECK(should(4, CommunicatorKind::automatic, gpu));
  CHECK(should(2, CommunicatorKind::nccl, gpu));
  CHECK_FALSE(should(4, CommunicatorKind::threads, gpu));
  CHECK_FALSE(should(5, CommunicatorKind::automatic, gpu));  // two share a GPU
  CHECK_FALSE(should(1, CommunicatorKind::automatic, gpu));
  CHECK_FALSE(should(4, CommunicatorKind::automatic, Device{}));
  CHECK_THROWS_WITH(
      run_world({.ranks = 4, .device = gpu, .threads = 1, .communicator = CommunicatorKind::nccl},
                [](Communicator&) {}),
      Catch::Contains("wait for each other's GPUs for ever") &&
          Catch::Contains("'tessera launch --ranks 4'"));
}

TEST_CASE("run_world: a rank that is a thread may allocate while another is in a collective") {
  const emulation::DeviceOptionsGuard guard(with_gpus(2));
  std::atomic<bool> ready = false, looks = false;
  Floats sums;
  run_world({.ranks = 2, .device = test::device(), .threads = 1}, [&](Communicator& world) {
    const Tensor x = tensor_of(world.rank(), 4);
    for (int step = 0; step < 2; ++step) world.next_step(compute());  // ranks compare calls no more
    compute().synchronize();
    if (world.rank() == 0) {
      ready = true;
      test::wait_for("rank 1 looks", [&] { return looks.load(); });
    } else {
      test::wait_for("rank 0 is ready", [&] { return ready.load(); });
      const std::uint64_t calls = emulation::host_calls();
      looks = true;
      test::wait_for("rank 0 is in its call", [&] { return emulation::host_calls() > calls; });
      Tensor::empty({1 << 22}, DType::f32);
    }
    world.all_reduce({x}, compute());
    if (world.rank() == 1) sums = x.to_vector<float>();
  });
  CHECK(sums.size() == 4);
}
#endif

TEST_CASE("run_world takes the communicator that is asked for, where it can") {
  const auto kinds = [](CommunicatorKind kind, const Device& device) {
    std::string trace;
    run_world({.ranks = 1, .device = device, .threads = 1, .communicator = kind},
              [&](Communicator& world) {
                const Tensor x = tensor_of(0, 3);
                world.all_reduce({x}, compute());
                trace = x.to_vector<float>() == test::values_of(0, 3) ? "ran" : "wrong";
              });
    return trace;
  };
  CHECK(kinds(CommunicatorKind::nccl, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::automatic, test::device()) == "ran");
  CHECK(kinds(CommunicatorKind::threads, test::device()) == "ran");
  CHECK_THROWS_WITH(kinds(CommunicatorKind::mpi, test::device()), Catch::Contains("mpirun -np"));
  CHECK_THROWS_WITH(kinds(CommunicatorKind::nccl, Device{}), Catch::Contains("on GPUs"));
  CHECK(enum_from_name<CommunicatorKind>("nccl") == CommunicatorKind::nccl);
  CHECK(enum_from_name<CommunicatorKind>("auto") == CommunicatorKind::automatic);
  CHECK_THROWS_WITH(enum_from_name<CommunicatorKind>("gloo"),
                    Catch::Contains("auto, threads, mpi or nccl"));
}

}  // namespace tessera
