// count_ladder: counts the accesses to memory of the rungs for a GPU, on the emulated one.
//
//   count_ladder --op matmul|hopper|norm|softmax|attention [--shape 256,256,64]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "examples/kernel_ladder/attention/operands.h"
#include "examples/kernel_ladder/counted.h"
#include "examples/kernel_ladder/hopper/rungs.h"
#include "examples/kernel_ladder/matmul/gpu_rungs.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "examples/kernel_ladder/softmax/operands.h"
#include "runtime/check.h"
#include "sharding/comm/threads/threads.h"
#include "tools/program/command_line.h"

namespace tessera::kernel_ladder {
namespace {

using Sizes = std::vector<std::int64_t>;

template <typename Operands, typename Rungs>
void print_counts_of(const Operands& operands, const Rungs& rungs) {
  std::vector<Counted> counted;
  for (const auto& rung : rungs) counted.push_back(count(rung, operands.problem()));
  print_counts(counted);
}

/// Prints a product's heading.
void begin_products(const Sizes& shape) {
  const std::int64_t M = shape[0], N = shape[1], K = shape[2];
  check(N % 8 == 0 && K % 8 == 0, "--shape {},{},{}: N and K must be multiples of 8", M, N, K);
  fmt::print("[{}, {}] x [{}, {}], counted\n", M, K, K, N);
}

void count_products(const Sizes& shape) {
  begin_products(shape);
  const Operands f32(shape[0], shape[1], shape[2], DType::f32);
  const Operands bf16(shape[0], shape[1], shape[2], DType::bf16);
  std::vector<Counted> counted;
  for (const MatmulRung& rung : matmul::kGpuRungs) {
    counted.push_back(count(rung, f32.product<float>()));
  }
  counted.push_back(count(matmul::kTensorCores, bf16.product<bfloat16>()));
  print_counts(counted);
}

void count_products_on_hopper(const Sizes& shape) {
  begin_products(shape);
  const Operands operands(shape[0], shape[1], shape[2], DType::bf16);
  std::vector<Counted> counted = {count(matmul::kTensorCores, operands.product<bfloat16>())};
  for (const auto& rung : hopper::kRungs) {
    counted.push_back(count(rung, operands.product<bfloat16>()));
  }
  print_counts_of_tiles(counted);
}

void count_norms(const Sizes& shape) {
  fmt::print("[{}, {}], counted\n", shape[0], shape[1]);
  print_counts_of(norm::Operands(shape[0], shape[1]), norm::kGpuRungs);
}

void count_softmaxes(const Sizes& shape) {
  fmt::print("[{}, {}], counted\n", shape[0], shape[1]);
  print_counts_of(softmax::Operands(shape[0], shape[1]), softmax::kGpuRungs);
}

void count_attention(const Sizes& shape) {
  constexpr std::int64_t D = attention::kGpuChannels;
  fmt::print("{} heads of [{}, {}], counted\n", shape[0], shape[1], D);
  print_counts_of(attention::Operands(shape[0], shape[1], D), attention::kGpuRungs);
}

struct Ladder {
  std::string name;
  Sizes shape;
  void (*count)(const Sizes& shape);
};

const std::array<Ladder, 5> kLadders = {{{"matmul", {256, 256, 64}, count_products},
                                         {"hopper", {512, 512, 128}, count_products_on_hopper},
                                         {"norm", {256, 768}, count_norms},
                                         {"softmax", {256, 768}, count_softmaxes},
                                         {"attention", {2, 128}, count_attention}}};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Ladder& ladder : kLadders) all.push_back(ladder.name);
  return all;
}

void run(const std::string& op, const Sizes& shape) {
  const Ladder& ladder = *std::find_if(kLadders.begin(), kLadders.end(),
                                       [&](const Ladder& l) { return l.name == op; });
  check(shape.empty() || shape.size() == ladder.shape.size(),
        "--shape has {} numbers; --op {} takes {}", shape.size(), op, ladder.shape.size());
  ladder.count(shape.empty() ? ladder.shape : shape);
}

}  // namespace
}  // namespace tessera::kernel_ladder

int main(int count, char** arguments) {
  using namespace tessera;
  std::string op;
  std::vector<std::int64_t> shape;
  Command app("count_ladder",
              "Counts the accesses of a ladder's rungs for a GPU, on the emulated one");
  app.option("--op", op, "The ladder").required().one_of(kernel_ladder::names());
  app.option("--shape", shape,
             "matmul, hopper: M,N,K (N, K multiples of 8); norm, softmax: rows,columns (at most "
             "1024, a "
             "multiple of 4); attention: heads,tokens")
      .separated_by_commas()
      .positive();
  return run_main(app, count, arguments, [&] {
    run_ranks({.device = {DeviceType::cuda, 0}, .threads = 1},
              [&](Communicator&) { kernel_ladder::run(op, shape); });
    return 0;
  });
}
