// The promises of a communicator: one order of additions, and one error when ranks do not agree.
//
// Run build/bin/agreement. docs/communicators.md walks through it.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string_view>

#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"

using namespace tessera;
using std::chrono_literals::operator""ms;

namespace {

/// Rank 0 has 2^24, to which f32 cannot add 1. The others have 1.
void print_sum(int ranks) {
  run_ranks({.ranks = ranks, .threads = 1}, [](Communicator& world) {
    const Tensor x = Tensor::full({1}, DType::f32, world.rank() == 0 ? 0x1p24 : 1.0);
    world.all_reduce({x}, context().compute_stream()).synchronize();
    if (world.rank() == 0) fmt::print("{} ranks: {:.0f}\n", world.size(), x.item<float>());
  });
}

/// The error that the caller of two ranks gets.
void print_error(std::string_view title, const std::function<void(Communicator&)>& body) {
  try {
    run_ranks({.ranks = 2, .threads = 1, .deadline = 300ms}, body);
  } catch (const Error& error) {
    std::string_view message = error.what();
    // Both ranks find that they disagree, and either may be the first to say so.
    message.remove_prefix(message.find("ranks disagree") == message.npos ? 0
                                                                         : message.find("ranks"));
    fmt::print("\n{}\n  {}\n", title, message);
  }
}

}  // namespace

int main() {
  for (const int ranks : {2, 4, 6}) print_sum(ranks);

  print_error("rank 1 gathers, rank 0 reduces", [](Communicator& world) {
    const Tensor x = Tensor::zeros({4}, DType::f32);
    const Stream& stream = context().compute_stream();
    if (world.rank() == 1) {
      world.all_gather({x}, stream, "h.3").synchronize();
    } else {
      world.all_reduce({x}, stream, "h.3").synchronize();
    }
  });
  print_error("rank 1 lacks a file, rank 0 waits", [](Communicator& world) {
    if (world.rank() == 1) fail("there is no file train.bin");
    world.barrier(context().compute_stream()).synchronize();
  });
  print_error("rank 1 does not come", [](Communicator& world) {
    if (world.rank() == 0) world.barrier(context().compute_stream()).synchronize();
  });
}
