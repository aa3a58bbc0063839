// bench_ladder: times the rungs of a ladder of kernels, or checks them.
//
//   bench_ladder --op matmul|norm|softmax|attention [--shape 1024,768,768] [--threads 2] [--runs 5]
//   bench_ladder --op matmul --check
//
// The last lines of a table are the library's kernel and the bounds. A bound is the peak of the
// instruction set, on cores with two units for vectors, or a copy of the same arrays.
#include <algorithm>

#include "examples/kernel_ladder/ladder.h"
#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"
#include "tools/program/command_line.h"

namespace tessera::kernel_ladder {
namespace {

struct Options {
  std::string op;
  std::vector<std::int64_t> shape;
  int threads = 0, runs = 5;
  bool check = false;
};

const std::vector<Ladder>& ladders() {
  static const std::vector<Ladder> all = {
    matmul_ladder(),
    norm_ladder(),
    softmax_ladder(),
    attention_ladder(),
#if defined(TESSERA_CUDA)
    hopper_ladder(),
#endif
  };
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Ladder& ladder : ladders()) all.emplace_back(ladder.name);
  return all;
}

void run(const Options& options) {
  const Ladder& ladder = *std::find_if(ladders().begin(), ladders().end(),
                                       [&](const Ladder& l) { return l.name == options.op; });
  check(options.shape.empty() || options.shape.size() == ladder.shape.size(),
        "--shape has {} numbers; --op {} takes {}: {}", options.shape.size(), ladder.name,
        ladder.shape.size(), ladder.sizes);
  run_ranks({.device = {ladder.device, 0}, .threads = options.threads}, [&](Communicator&) {
    if (options.check) return ladder.check();
    ladder.time(options.shape.empty() ? ladder.shape : options.shape, options.runs);
  });
}

}  // namespace
}  // namespace tessera::kernel_ladder

int main(int count, char** arguments) {
  using namespace tessera;
  kernel_ladder::Options options;
  Command app("bench_ladder", "Times the rungs of a ladder of kernels");
  app.shows_defaults();
  app.option("--op", options.op, "The ladder").required().one_of(kernel_ladder::names());
  app.option("--shape", options.shape,
             "matmul, hopper: M,N,K; norm, softmax: rows,columns; attention: heads,tokens,channels")
      .separated_by_commas()
      .positive();
  app.option("--threads", options.threads, "0: all cores").not_negative();
  app.option("--runs", options.runs, "Timed runs per rung").positive();
  app.flag("--check", options.check, "Print the rungs' errors instead of their times");
  return run_main(app, count, arguments, [&] {
    kernel_ladder::run(options);
    return 0;
  });
}
