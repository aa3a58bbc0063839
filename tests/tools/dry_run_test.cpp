// Dry runs against real training steps: the accounts are equal to the byte.
#include "tools/plan/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "models/documents.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/child.h"
#include "tests/support/device.h"
#include "tests/support/findings.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/plan/plan.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

constexpr int kThreads = 2;

/// Two blocks of a family with odd sizes.
Config tiny(const std::string& preset) {
  Config config;
  config.model = {
      .preset = preset, .layers = 2, .heads = 4, .width = 24, .context = 19, .vocab_size = 61};
  if (preset != "gpt2-mini") {
    config.model.kv_heads = 2;
    config.model.mlp_width = 40;
  }
  if (preset == "qwen3-moe-mini" || preset == "llama4-mini") {
    config.model.experts = 5;
    config.model.expert_width = 16;
  }
  config.data = {.batch_size = 8, .sequence_length = 19};
  return config;
}

/// Random tokens, cut into documents where the run cuts them.
BatchSource tokens_of(const ResolvedConfig& run) {
  const BatchSource tokens = random_tokens(run.config.data, shape_of(run.model).vocab_size);
  const std::int64_t length = run.config.data.sequence_length;
  return {[tokens, length, separator = run.document_token](std::int64_t step, std::int64_t first,
                                                           std::int64_t rows) {
            Batch batch = tokens.load(step, first, rows);
            if (separator) {
              batch.document_starts =
                  document_starts(batch.inputs.to_vector<std::int32_t>(), length, *separator);
            }
            return batch;
          },
          [length](std::int64_t, std::int64_t, std::int64_t rows) { return rows * length; }};
}

void synchronize() {
  communication_stream().synchronize();
  context().compute_stream().synchronize();
}

std::string text_of(const MemoryAccount& account) {
  std::string text = fmt::format("total {}", account.total.peak);
  for (int i = 0; i < kCategories; ++i) {
    const MemoryAccount::Line& line = account.categories[i];
    text +=
        fmt::format(", {} {} of at most {}", enum_names<Category>()[i], line.at_peak, line.peak);
  }
  return text;
}

/// The first difference between the allocations of two steps, in order; empty for equal ones.
/// Releases are left out: a rank's other threads may make them a little later.
std::string difference(const std::vector<MemoryEvent>& predicted,
                       const std::vector<MemoryEvent>& measured) {
  const auto allocations = [](const std::vector<MemoryEvent>& history) {
    std::vector<std::string> lines;
    for (const MemoryEvent& event : history) {
      if (event.bytes > 0)
        lines.push_back(fmt::format("{} {}", name_of(event.category), event.bytes));
    }
    lines.push_back("the end");
    return lines;
  };
  const auto a = allocations(predicted), b = allocations(measured);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] != b[i]) return fmt::format("allocation {}: predicted {}, measured {}", i, a[i], b[i]);
  }
  return "";
}

/// Trains for a step and compares the accounts of the next one with those of a dry run.
void check_step(const std::string& name, const Config& config, int ranks) {
  INFO(name << " on " << ranks << " ranks");
  const ResolvedConfig run = resolve(config);
  const Device device = test::device();
  test::Findings findings;
  run_ranks({.ranks = ranks, .device = device, .threads = kThreads}, [&](Communicator& world) {
    choose_kernels(run.config);
    TrainingSession session(run, world);
    const BatchSource batches = tokens_of(run);
    session.step(1, batches);
    synchronize();
    context().allocator().reset_peaks();
    context().allocator().record_history(true);
    const std::int64_t sent = world.bytes_sent();
    session.step(2, batches);
    synchronize();
    const std::string measured = fmt::format(
        "{}, sent {}", text_of(context().allocator().account()), world.bytes_sent() - sent);
    const StepMemory dry = dry_run(
        run,
        {.rank = world.rank(), .ranks = ranks, .device = context().device(), .threads = kThreads});
    const std::string predicted = fmt::format("{}, sent {}", text_of(dry.account), dry.bytes_sent);
    const std::string first = difference(dry.history, context().allocator().history());
    findings.expect(predicted == measured && first.empty(),
                    fmt::format("{}, rank {} of {}, {}:\n  predicted {}\n  measured  {}\n  {}",
                                name, world.rank(), ranks, dry.moment, predicted, measured, first));
  });
  CHECK(findings.wrong() == std::vector<std::string>());
}

/// The same under every strategy.
void check_family(const std::string& preset, const Config& base) {
  check_step(preset, base, 1);
  for (const std::string& strategy : strategy_variants()) {
    check_step(preset + " " + strategy, variant_of(base, strategy), strategy == "hsdp" ? 4 : 2);
  }
}

}  // namespace

TEST_CASE("dry run: every byte of a step of every family under every strategy", "[cpu]") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "llama2-7b"}) {
    check_family(preset, tiny(preset));
  }
  for (const char* preset : {"qwen3-mini", "qwen3-moe-mini", "llama4-mini", "gemma3-mini"}) {
    Config config = tiny(preset);
    config.runtime.compute_dtype = DType::bf16;
    check_family(preset, config);
  }
}

TEST_CASE("dry run: checkpointing, accumulation, documents and options of training", "[cpu]") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "llama4-mini"}) {
    const auto varied = [&](const std::string& name, int ranks, const auto& vary) {
      Config config = tiny(preset);
      config.model.layers = 4;
      config.sharding.strategy = StrategyKind::fsdp;
      vary(config);
      check_step(preset + (" with " + name), config, ranks);
    };
    varied("everything recomputed", 2, [](Config& config) {
      config.sharding.activation_checkpointing = parse_checkpointing("full").value();
      config.data.accumulation_steps = 2;
    });
    varied("every second block recomputed", 1, [](Config& config) {
      config.sharding.activation_checkpointing = parse_checkpointing("every 2").value();
      config.runtime.compute_dtype = DType::bf16;
    });
    varied("dropout, documents and sums once", 2, [](Config& config) {
      if (config.model.preset == "gpt2-mini") config.model.dropout = 0.1;
      config.data.document_token = "7";
      config.data.accumulation_steps = 4;
      config.sharding.reduce = ReduceAfter::last_micro_batch;
    });
    varied("f16, SGD and narrow sums", 2, [](Config& config) {
      config.runtime.compute_dtype = DType::f16;
      config.optimizer.name = OptimizerKind::sgd;
      config.sharding.reduce_dtype = DType::bf16;
    });
    varied("Muon", 2, [](Config& config) { config.optimizer.name = OptimizerKind::muon; });
    varied("Muon in f32, by ddp", 2, [](Config& config) {
      config.optimizer.name = OptimizerKind::muon;
      config.optimizer.muon_ns_dtype = DType::f32;
      config.sharding.strategy = StrategyKind::ddp;
    });
    varied("bf16 masters and moments", 2, [](Config& config) {
      config.runtime.compute_dtype = DType::bf16;
      config.optimizer.master_dtype = DType::bf16;
      config.optimizer.state_dtype = DType::bf16;
    });
    varied("a head in chunks of five tokens", 2, [](Config& config) {
      config.runtime.compute_dtype = DType::bf16;
      config.kernels.head_chunk = 5;
    });
    varied("bf16 gradients, offloaded", 2, [](Config& config) {
      config.runtime.compute_dtype = DType::bf16;
      config.optimizer.gradient_dtype = DType::bf16;
      config.sharding.offload = Offload::all;
    });
    varied("bf16 masters, offloaded, and f32 moments", 2, [](Config& config) {
      config.sharding.strategy = StrategyKind::zero2;
      config.runtime.compute_dtype = DType::f16;
      config.optimizer.master_dtype = DType::bf16;
      config.sharding.offload = Offload::optimizer;
    });
    varied("groups of the optimizer and an average, offloaded", 2, [](Config& config) {
      config.sharding.strategy = StrategyKind::zero1;
      config.sharding.offload = Offload::optimizer;
      config.train.ema = 0.9;
      config.optimizer.groups = {
          {.match = "matrices", .keys = {{"name", "sgd"}, {"momentum", "0.9"}}},
          {.match = "vectors", .keys = {{"state_dtype", "bf16"}}}};
    });
    varied("an update under the next pass, and an average", 2, [](Config& config) {
      config.runtime.overlap_update = true;
      config.runtime.compute_dtype = DType::bf16;
      config.sharding.strategy = StrategyKind::zero1;
      config.train.ema = 0.9;
    });
    varied("adapters on a packed base", 2, [](Config& config) {
      config.runtime.compute_dtype = DType::bf16;
      config.adapter = {{.rank = 3, .base = AdapterBase::nf4}, {}};
      config.sharding.activation_checkpointing = parse_checkpointing("every 2").value();
    });
    varied("an adapter of few layers on a packed base, offloaded", 2, [](Config& config) {
      config.adapter = {{.rank = 3, .targets = "*.1.*", .base = AdapterBase::nf4}, {}};
      config.sharding.offload = Offload::all;
    });
    varied("offloading", 2, [](Config& config) { config.sharding.offload = Offload::all; });
    varied("watched steps", 2, [](Config& config) { config.train.watch = 2; });
    varied("watched steps of offloaded bf16 masters, recomputed", 2, [](Config& config) {
      config.train.watch = 1;
      config.runtime.compute_dtype = DType::bf16;
      config.optimizer.master_dtype = DType::bf16;
      config.sharding.offload = Offload::all;
      config.sharding.activation_checkpointing = parse_checkpointing("full").value();
    });
  }
}

TEST_CASE("dry run: the balances of a mixture of experts", "[cpu]") {
  for (const Balance balance : {Balance::none, Balance::bias, Balance::lagged, Balance::hf}) {
    Config config = tiny("qwen3-moe-mini");
    config.moe.balance = balance;
    config.moe.z_loss = 1e-3;
    config.data.accumulation_steps = 2;
    config.sharding.strategy = StrategyKind::ddp;
    check_step("balance", config, 2);
  }
}

TEST_CASE("dry run: rows that travel to experts, with equal counts and with any", "[cpu]") {
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini"}) {
    for (const int shared_out : {2, 4}) {
      Config config = tiny(preset);
      config.model.experts = 8;
      config.sharding.strategy = shared_out == 2 ? StrategyKind::fsdp : StrategyKind::ddp;
      config.sharding.expert_parallel = shared_out;
      config.data.accumulation_steps = 2;
      config.moe.force_balance = true;
      check_step(fmt::format("{} in {} parts", preset, shared_out), config, 4);
      config.sharding.expert_sums = ExpertSums::fast;
      check_step(fmt::format("{} in {} parts, fast", preset, shared_out), config, 4);
      config.sharding.expert_pieces = 2;
      check_step(fmt::format("{} in {} parts, two pieces", preset, shared_out), config, 4);
      config.sharding.expert_copies = ExpertCopies::each_rank;
      check_step(fmt::format("{} in {} parts, copies", preset, shared_out), config, 4);

      config.moe.force_balance = false;
      const ResolvedConfig run = resolve(config);
      test::Findings findings;
      run_ranks({.ranks = 4, .device = test::device(), .threads = kThreads},
                [&](Communicator& world) {
                  TrainingSession session(run, world);
                  for (int step = 1; step <= 2; ++step) session.step(step, tokens_of(run));
                  synchronize();
                  const StepMemory most = dry_run(run,
                                                  {.rank = world.rank(),
                                                   .ranks = 4,
                                                   .device = context().device(),
                                                   .threads = kThreads},
                                                  AssumedLoad::Kind::all_here);
                  const std::int64_t measured = context().allocator().account().total.peak;
                  findings.expect(measured <= most.account.total.peak,
                                  fmt::format("rank {}: a peak of {}, at most {} predicted",
                                              world.rank(), measured, most.account.total.peak));
                });
      CHECK(findings.wrong() == std::vector<std::string>());
    }
  }
}

TEST_CASE("dry run: rows that travel to experts whose channels ranks share out", "[cpu]") {
  for (const char* preset : {"qwen3-moe-mini", "llama4-mini"}) {
    Config config = tiny(preset);
    config.model.experts = 4;
    config.model.context = config.data.sequence_length = 16;
    config.sharding.strategy = StrategyKind::fsdp;
    config.sharding.expert_parallel = 2;
    config.sharding.tensor_parallel = 2;
    config.moe.force_balance = true;
    check_step(fmt::format("{} by 2 x 2 ranks", preset), config, 4);
    config.sharding.expert_copies = ExpertCopies::each_rank;
    config.sharding.activation_checkpointing = {.first = 1, .every = 1};
    config.runtime.compute_dtype = DType::bf16;
    config.data.accumulation_steps = 2;
    check_step(fmt::format("{} by 2 x 2 of 8 ranks, copies", preset), config, 8);
    config.sharding.grid = 4;
    config.sharding.pipeline_parallel = 2;
    check_step(fmt::format("{} by 2 x 2 ranks in stages, a grid of 4", preset), config, 8);
  }
}

TEST_CASE("dry run: tensor ranks that share heads of keys", "[cpu]") {
  for (const char* preset : {"llama3-mini", "qwen3-mini"}) {
    Config config = tiny(preset);
    config.model.context = config.data.sequence_length = 16;
    config.sharding.strategy = StrategyKind::fsdp;
    config.sharding.tensor_parallel = 4;
    check_step(fmt::format("{} on ranks with half a head of keys", preset), config, 8);
    config.sharding.grid = 4;
    config.sharding.activation_checkpointing = {.first = 1, .every = 1};
    config.runtime.compute_dtype = DType::bf16;
    check_step(fmt::format("{} in a grid of 4", preset), config, 4);
    config.sharding.tensor_parallel = 2;
    check_step(fmt::format("{} with copies of heads", preset), config, 4);
  }
}

TEST_CASE("dry run: ranks that share out tokens, and leaves of rows", "[cpu]") {
  for (const char* preset : {"gpt2-mini", "qwen3-mini", "qwen3-moe-mini", "llama4-mini"}) {
    Config config = tiny(preset);
    config.model.context = 32;
    config.data = {.batch_size = 8, .sequence_length = 32, .accumulation_steps = 2};
    config.sharding.strategy = StrategyKind::fsdp;
    config.sharding.context_parallel = 2;
    check_step(fmt::format("{} in 4 pieces", preset), config, 4);
    config.sharding.activation_checkpointing = {.first = 1, .every = 1};
    config.sharding.grid = 4;
    config.runtime.compute_dtype = DType::bf16;
    check_step(fmt::format("{} in 8 pieces", preset), config, 2);
    config.data.document_token = "7";
    config.sharding.context_parallel = 1;
    check_step(fmt::format("{} in 8 pieces of one rank", preset), config, 1);
  }
}

TEST_CASE("dry run: rows of tensor ranks, together and by rank", "[cpu]") {
  for (const char* preset :
       {"gpt2-mini", "llama3-mini", "qwen3-moe-mini", "llama4-mini", "gemma3-mini"}) {
    for (const RowExchange exchange : {RowExchange::together, RowExchange::by_rank}) {
      Config config = tiny(preset);
      config.model.heads = config.model.kv_heads = 4;
      config.data = {.batch_size = 8, .sequence_length = 16, .accumulation_steps = 2};
      config.sharding.strategy = StrategyKind::fsdp;
      config.sharding.tensor_parallel = 2;
      config.sharding.tensor_exchange = exchange;
      check_step(fmt::format("{} {}", preset, enum_name(exchange)), config, 4);
      config.sharding.activation_checkpointing = {.first = 1, .every = 1};
      config.sharding.grid = 4;
      config.runtime.compute_dtype = DType::bf16;
      config.sharding.tensor_parallel = 4;
      check_step(fmt::format("{} {}, recomputed", preset, enum_name(exchange)), config, 4);
    }
  }
}

TEST_CASE("dry run: a block keeps the bytes that the book counts", "[cpu]") {
  // The difference that a further block makes when the backward pass begins.
  const auto kept_per_token = [](Config config) {
    config.runtime.compute_dtype = DType::bf16;
    config.model.vocab_size = 2;  // so that the peak is in backward, and not in the loss
    config.model.layers = 2;
    const auto activations = [&] {
      return dry_run(resolve(config), {.device = test::device(), .threads = 1})
          .account[Category::activations]
          .at_peak;
    };
    const std::int64_t two = activations();
    config.model.layers = 3;
    return (activations() - two) / tokens_per_step(config.data);
  };
  const std::int64_t C = 24, H = 4, Q = 24, K = 12, F = 40;
  CHECK(kept_per_token(tiny("gpt2-mini")) == 2 * 16 * C + 4 * (H + 4));
  const std::int64_t llama = 2 * (4 * C + 2 * Q + 2 * K + 3 * F) + 4 * (H + 2);
  CHECK(kept_per_token(tiny("llama2-7b")) == llama);
  // The norms of queries and keys keep their inputs, and a number for each head.
  Config qwen3 = tiny("qwen3-mini");
  qwen3.model.head_size = 6;
  CHECK(kept_per_token(qwen3) == llama + 2 * (Q + K) + 4 * (H + 2));
  Config recomputed = tiny("llama2-7b");
  recomputed.sharding.activation_checkpointing = parse_checkpointing("full").value();
  CHECK(kept_per_token(recomputed) == 2 * C);
}

TEST_CASE("dry run: a shortened run has the same peak", "[cpu]") {
  for (const char* preset : {"llama3-mini", "qwen3-moe-mini"}) {
    Config config = tiny(preset);
    config.data.batch_size = 28;
    config.data.accumulation_steps = 7;
    for (const StrategyKind strategy : {StrategyKind::ddp, StrategyKind::fsdp}) {
      config.sharding.strategy = strategy;
      const ResolvedConfig run = resolve(config);
      const DryRank rank{.ranks = 2, .device = test::device(), .threads = 1};
      CHECK(text_of(dry_run(shortened(run, 2), rank).account) ==
            text_of(dry_run(run, rank).account));
    }
  }
  Config uneven = tiny("llama3-mini");
  uneven.data.batch_size = 13;
  CHECK(shortened(resolve(uneven), 4).config.data.batch_size == 16);
}

TEST_CASE("dry run: a thousand ranks of a model that no machine could hold", "[cpu]") {
  Config config;
  config.model.preset = "llama3-70b";
  config.data = {.batch_size = 1024, .sequence_length = 8192};
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.compute_dtype = DType::bf16;
  const StepMemory step =
      dry_run(resolve(config), {.rank = 1023, .ranks = 1024, .ranks_per_node = 8, .threads = 1});
  // 80 blocks of activations: each more than 8192 x 8192 numbers of its input, in 16 bits.
  CHECK(step.account[Category::activations].at_peak > 80 * 8192LL * 8192 * 2);
  CHECK(step.account[Category::optimizer].at_peak < 8 * 71'000'000'000 / 1024);
  CHECK(step.moment.find("ward of ") != step.moment.npos);
}

TEST_CASE("dry run: the peak's categories add up to it, and its moment is named", "[cpu]") {
  const Config config = tiny("llama2-7b");
  const StepMemory step = dry_run(resolve(config), {.device = test::device(), .threads = 1});
  std::int64_t sum = 0;
  for (const MemoryAccount::Line& line : step.account.categories) sum += line.at_peak;
  CHECK(sum == step.account.total.peak);
  CHECK(step.moment == "forward of head");
  Config longer = config;
  longer.model.vocab_size = 2;  // a small table of logits
  longer.model.mlp_width = 400;
  CHECK(dry_run(resolve(longer), {.device = test::device(), .threads = 1}).moment ==
        "backward of layers.1");
}

TEST_CASE("dry run: its memory reads as zero, and a write on the host ends the process", "[cpu]") {
  RankContext context({.threads = 1, .dry = true});
  const ContextGuard guard(context);
  const Tensor x = Tensor::full({3}, DType::f32, 5.0);
  CHECK(x.to_vector<float>() == std::vector<float>(3, 0.0f));
  CHECK(x.data<float>()[1] == 0.0f);
  CHECK(test::run_child([&] { x.data<float>()[1] = 1.0f; }).failed());
  bool ran = false;
  parallel_for(10, 1, [&](std::int64_t, std::int64_t) { ran = true; });
  on_one_thread([&] { ran = true; });
  CHECK_FALSE(ran);
}

}  // namespace tessera
