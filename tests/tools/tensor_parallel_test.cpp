// sharding.tensor_parallel: the same bits for every number of tensor ranks that divides the grid.
//
// Expected bits are those of one tensor rank, which forms all parts of the grid by itself. Without a grid
// the bits of one rank without tensor parallelism are the reference, to rounding.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/routers.h"
#include "tests/support/device.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_program.h"
#include "tests/tools/sessions.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/sharding_options.h"
#include "tools/export/export.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

constexpr std::int64_t kGrid = 8;
constexpr const char *kQwen3Moe = "qwen3-moe-mini", *kLlama4 = "llama4-mini";
constexpr const char* kGemma3 = "gemma3-mini";

/// A vocabulary of 37 is divided unevenly, and with a grid of 8 its last part is short.
Config small_model(const std::string& preset) {
  Config config;
  config.model = {
      .preset = preset, .layers = 2, .heads = 8, .width = 32, .context = 16, .vocab_size = 37};
  if (preset != "gpt2-mini") {
    config.model.kv_heads = 8;
    config.model.head_size = 4;
  }
  if (preset == "llama3-mini" || preset == "qwen3-mini" || preset == kGemma3) {
    config.model.mlp_width = 48;
  }
  if (preset == kQwen3Moe || preset == kLlama4) {
    config.model.experts = 4;
    config.model.expert_width = 24;
  }
  if (preset == kLlama4) config.model.attention_chunk = 8;
  if (preset == "gpt2-mini") config.model.dropout = 0.2;
  config.data = {.batch_size = 4, .sequence_length = 16};
  config.optimizer.clip_norm = 0.1;
  config.sharding.strategy = StrategyKind::ddp;
  config.sharding.grid = kGrid;
  return config;
}

TrainedSession train(Config config, int tensor_ranks, int data_ranks = 1) {
  config.sharding.tensor_parallel = tensor_ranks;
  return test::train_session(config, tensor_ranks * data_ranks,
                             {.count = 3, .device = test::device()});
}

void check_same(const TrainedSession& found, const TrainedSession& expected) {
  CHECK(found.losses == expected.losses);
  CHECK(found.router_losses == expected.router_losses);
  CHECK(found.norms == expected.norms);
  CHECK((found.weights == expected.weights));
}

}  // namespace

TEST_CASE("tensor ranks: with a grid 1, 2, 4 and 8 of them have the same bits") {
  for (const char* preset :
       {"gpt2-mini", "llama3-mini", "qwen3-mini", kQwen3Moe, kLlama4, kGemma3}) {
    const Config config = small_model(preset);
    const TrainedSession expected = train(config, 1);
    REQUIRE(expected.losses[0] != expected.losses[2]);
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(preset, ranks);
      check_same(train(config, ranks), expected);
    }
  }
}

// Messages are late by random times, so that a rank that reads rows before they have arrived is found.
TEST_CASE("tensor ranks: rows that travel by rank have the bits of those that travel together") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", "qwen3-mini", kQwen3Moe, kLlama4}) {
    for (const std::int64_t grid : {std::int64_t{0}, kGrid}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const int ranks : {2, 4}) {
          CAPTURE(preset, grid, name_of(dtype), ranks);
          Config config = small_model(preset);
          config.sharding.grid = grid;
          config.sharding.tensor_parallel = ranks;
          config.runtime.compute_dtype = dtype;
          const TrainedSession together =
              test::train_session(config, ranks, {.count = 2, .device = test::device()});
          config.sharding.tensor_exchange = RowExchange::by_rank;
          Findings findings;
          check_same(
              test::train_session(
                  config, ranks,
                  {.count = 2, .device = test::device(), .findings = &findings, .delay_seed = 5}),
              together);
          CHECK(findings.wrong() == std::vector<std::string>());
        }
      }
    }
  }
}

TEST_CASE("tensor ranks share heads of keys, and have the bits of one rank") {
  struct Case {
    const char* preset;
    std::int64_t heads_of_keys;
    DType dtype;
  };
  for (const Case& c : {Case{"llama3-mini", 2, DType::f32}, Case{"llama3-mini", 2, DType::bf16},
                        Case{"qwen3-mini", 2, DType::f32}, Case{"qwen3-mini", 4, DType::bf16}}) {
    Config config = small_model(c.preset);
    config.model.kv_heads = c.heads_of_keys;
    config.runtime.compute_dtype = c.dtype;
    const TrainedSession expected = train(config, 1);
    REQUIRE(expected.losses[0] != expected.losses[2]);
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(c.preset, c.heads_of_keys, name_of(c.dtype), ranks);
      check_same(train(config, ranks), expected);
    }
    config.sharding.context_parallel = 2;
    check_same(train(config, 4, 2), expected);
  }
}

TEST_CASE("tensor ranks: masters and moments in bf16 are rounded alike on any number of them") {
  for (const bool masters : {true, false}) {
    for (const char* strategy : {"ddp", "zero3", "fsdp", "fsdp_flat"}) {
      CAPTURE(masters, strategy);
      Config config = variant_of(small_model("llama3-mini"), strategy);
      config.runtime.compute_dtype = DType::bf16;
      (masters ? config.optimizer.master_dtype : config.optimizer.state_dtype) = DType::bf16;
      const TrainedSession expected = train(config, 1, 2);
      check_same(train(config, 2, 2), expected);
      check_same(train(config, 4, 2), expected);
    }
  }
}

TEST_CASE("tensor ranks: the strategies share out what a tensor rank holds") {
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(strategy, name_of(dtype));
      Config config = variant_of(small_model("llama3-mini"), strategy);
      config.runtime.compute_dtype = dtype;
      check_same(train(config, 2, 2), train(config, 1, 2));
    }
  }
}

// The balance of the routers moves biases by counts and adds losses, so both must be counted once.
TEST_CASE(
    "tensor ranks share out the channels inside experts, next to data, expert and context ranks") {
  struct Case {
    const char *preset, *strategy;
    Balance balance;
    int tensor, expert, context, batch;
    DType dtype = DType::f32;
    bool recomputes = false;
  };
  for (const Case& c :
       {Case{kQwen3Moe, "ddp", Balance::lagged, 4, 2, 1, 2},
        Case{kLlama4, "fsdp", Balance::bias, 2, 2, 1, 2, DType::bf16},
        Case{kQwen3Moe, "fsdp_flat", Balance::hf, 2, 1, 1, 2, DType::bf16, /*recomputes=*/true},
        Case{kLlama4, "zero3", Balance::lagged, 2, 1, 2, 1, DType::f32, /*recomputes=*/true},
        Case{kQwen3Moe, "hsdp", Balance::bias, 2, 2, 1, 4}}) {
    CAPTURE(c.preset, c.strategy, c.tensor, c.expert, c.context, c.batch);
    Config config = variant_of(small_model(c.preset), c.strategy);
    config.moe = {.balance = c.balance, .bias_rate = 0.01};
    config.runtime.compute_dtype = c.dtype;
    if (c.recomputes) config.sharding.activation_checkpointing = {.first = 0, .every = 1};
    const TrainedSession expected = train(config, 1, c.batch);
    config.sharding.expert_parallel = c.expert;
    config.sharding.context_parallel = c.context;
    check_same(train(config, c.tensor, c.context * c.batch), expected);
  }
}

TEST_CASE("tensor ranks and context ranks together have the bits of one rank") {
  struct Case {
    const char *preset, *strategy;
    int context, tensor, others;
  };
  for (const Case& c : {Case{"gpt2-mini", "ddp", 2, 2, 1}, Case{"gpt2-mini", "fsdp", 2, 4, 1},
                        Case{"llama3-mini", "fsdp", 4, 2, 1}, Case{"qwen3-mini", "zero3", 2, 2, 2},
                        Case{"qwen3-mini", "hsdp", 2, 2, 2}}) {
    CAPTURE(c.preset, c.strategy, c.context, c.tensor);
    Config config = variant_of(small_model(c.preset), c.strategy);
    const TrainedSession expected = train(config, 1, c.others);
    config.sharding.context_parallel = c.context;
    check_same(train(config, c.tensor, c.context * c.others), expected);
  }
}

TEST_CASE("tensor ranks: a token's logits have the bits of training, however tokens are fed") {
  for (const char* preset : {"gpt2-mini", "qwen3-mini", "llama3-mini", kQwen3Moe, kLlama4}) {
    // Log-probabilities of rows, and those of the same tokens by a cache: 3 tokens, then one by one.
    std::vector<std::vector<float>> of_rows(4), by_cache(4);
    const std::vector<int> all_ranks = {1, 2, 8};
    for (std::size_t run = 0; run < all_ranks.size(); ++run) {
      Config config = small_model(preset);
      if (config.model.preset == "llama3-mini") config.model.kv_heads = 2;
      config.sharding.tensor_parallel = all_ranks[run];
      const auto body = [&](TrainingSession& session, const BatchSource& source,
                            Communicator& world) {
        const NoGradient no_gradient;
        const Batch batch = source.load(1, 0, 1);
        LanguageModel& model = session.model();
        const Tensor rows = model.log_probabilities(batch.inputs, batch.targets);
        const Tensor inputs = batch.inputs.reshape({16}), targets = batch.targets.reshape({16});
        KeyValueCache cache(model.shape());
        std::vector<float> fed;
        for (std::int64_t first = 0, last = 3; first < 16; first = last, last = first + 1) {
          const Tensor logits = model.next_logits(inputs.slice(first, last), cache);
          const Tensor found = log_probabilities_of(logits.reshape({1, logits.numel()}),
                                                    targets.slice(last - 1, last));
          fed.push_back(found.to_vector<float>().front());
        }
        if (world.rank() != 0) return;
        of_rows[run] = rows.to_vector<float>();
        by_cache[run] = fed;
      };
      test::with_session(config, all_ranks[run], body, test::device());
      CAPTURE(preset, all_ranks[run]);
      CHECK(of_rows[run] == of_rows[0]);
      CHECK(by_cache[run] == std::vector(of_rows[0].begin() + 2, of_rows[0].end()));
    }
  }
}

namespace {

/// A run in which ranks share heads of keys, or the channels inside experts.
struct SharedRun {
  const char *preset, *strategy;
  int tensor, expert, data;
};

constexpr SharedRun kSharedRuns[] = {
    {"llama3-mini", "fsdp", 8, 1, 1}, {kQwen3Moe, "ddp", 4, 2, 2}, {kLlama4, "zero3", 4, 2, 2}};

/// Three steps on text, by ranks that share out rows alone.
Config run_on_text(const SharedRun& shared, const test::TemporaryDirectory& folder) {
  Config config = test::tiny_run(folder);
  config.model = small_model(shared.preset).model;
  config.model.vocab_size = 0;  // the tokenizer's
  config.model.kv_heads = 2;
  config.model.context = config.data.sequence_length = 32;
  config.sharding.grid = kGrid;
  config.train.steps = 3;
  config.train.eval_every = 2;
  config.train.checkpoint_every = 2;
  config.runtime.ranks = shared.data;
  return variant_of(config, shared.strategy);
}

Config shared_out(Config config, const SharedRun& shared) {
  config.runtime.ranks = shared.data * shared.tensor;
  config.sharding.tensor_parallel = shared.tensor;
  config.sharding.expert_parallel = shared.expert;
  return config;
}

}  // namespace

TEST_CASE(
    "tensor ranks: a run is saved, exported, loaded and resumed with the bits of whole layers",
    "[cpu]") {
  for (const SharedRun& shared : kSharedRuns) {
    CAPTURE(shared.preset);
    const test::TemporaryDirectory folder;
    const Config whole = run_on_text(shared, folder);
    tessera::train(whole);
    Config cut = shared_out(whole, shared);
    cut.train.dir = folder / "cut";
    tessera::train(cut);
    CHECK(test::results_of(cut.train.dir) == test::results_of(whole.train.dir));
    CHECK((test::saved_weights(cut.train.dir) == test::saved_weights(whole.train.dir)));

    // From the middle of the other run.
    for (const bool from_cut : {true, false}) {
      Config resumed = from_cut ? whole : cut;
      resumed.train.resume = ((from_cut ? cut : whole).train.dir / "step-000002").string();
      resumed.train.dir = folder / (from_cut ? "resumed-whole" : "resumed-cut");
      tessera::train(resumed);
      CHECK((test::saved_weights(resumed.train.dir) == test::saved_weights(whole.train.dir)));
    }

    // Through files for Transformers, and back.
    {
      const test::Rank rank;
      export_model({.model = cut.train.dir, .out = folder / "exported", .file_bytes = 10'000});
    }
    for (const Config& base : {whole, cut}) {
      Config again = base;
      again.model = {.init_from = folder / "exported"};
      again.moe.balance = whole.model.experts > 0 ? std::optional(Balance::none) : std::nullopt;
      again.optimizer.learning_rate = 0.0;
      again.train.steps = 1;
      again.train.checkpoint_every = 0;
      again.train.dir = folder / ("again-" + std::to_string(base.runtime.ranks));
      tessera::train(again);
      auto weights = test::saved_weights(whole.train.dir);
      std::erase_if(weights, [](const auto& one) { return is_router_bias(one.first); });
      CHECK((test::saved_weights(again.train.dir) == weights));
    }
  }
}

TEST_CASE("tensor ranks: generate and score have the bits of training", "[cpu]") {
  for (const SharedRun& shared : kSharedRuns) {
    CAPTURE(shared.preset);
    const test::TemporaryDirectory folder;
    const Config config = shared_out(run_on_text(shared, folder), shared);
    tessera::train(config);
    const std::string model = config.train.dir.string();
    const std::string ranks = std::to_string(config.runtime.ranks);
    const std::vector<std::int32_t> row = {1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8, 0, 9, 1, 0, 2, 3};
    write_file_atomically(folder / "rows.json", fmt::format("[[{}]]", fmt::join(row, ",")));
    write_file_atomically(folder / "prompts.txt", std::string("1 2 3\n31 32 33 34\n"));
    const auto output = [&](std::vector<std::string> arguments, const std::string& number) {
      for (const char* more : {"--model", model.c_str(), "--device", "cpu", "--threads", "1",
                               "--ranks", number.c_str()}) {
        arguments.emplace_back(more);
      }
      const test::Outcome outcome = test::run(arguments);
      CHECK(outcome.err.empty());
      REQUIRE(outcome.status == 0);
      return outcome.out;
    };
    const std::vector<std::string> score = {"score", "--tokens", folder / "rows.json"};
    const std::vector<std::string> generate = {
        "generate", "--prompts", folder / "prompts.txt", "--tokens", "12", "--seed", "3"};
    const std::string scores = output(score, ranks);
    CHECK(scores == output(score, "1"));
    CHECK(output(generate, ranks) == output(generate, "1"));

    // The session that trains, with the weights of the run.
    Config session_config = config;
    session_config.model = {.init_from = config.train.dir / "model"};
    std::vector<float> expected;
    test::with_session(session_config, static_cast<int>(config.runtime.ranks),
                       [&](TrainingSession& session, const BatchSource&, Communicator& world) {
                         const auto length = static_cast<std::int64_t>(row.size()) - 1;
                         const Tensor tokens = Tensor::from(row, {length + 1});
                         const Tensor found = session.model().log_probabilities(
                             tokens.slice(0, length).reshape({1, length}),
                             tokens.slice(1, length + 1).reshape({1, length}));
                         if (world.rank() == 0) expected = found.to_vector<float>();
                       });
    const auto printed = nlohmann::json::parse(scores)["log_probabilities"][0];
    CHECK(printed.get<std::vector<float>>() == expected);
  }
}

TEST_CASE("tensor ranks that a model does not have room for are one line", "[cpu]") {
  const auto refusal = [](const Config& base, int tensor_ranks) {
    return test::error_of([&] { train(base, tensor_ranks); });
  };
  Config config = small_model("llama3-mini");
  config.model.heads = 6, config.model.width = 24;
  config.model.kv_heads = 3;
  config.sharding.grid = 0;
  CHECK_THAT(refusal(config, 2),
             Catch::Contains("sharding.tensor_parallel 2 does not divide the 3 "
                             "heads of 'model.layers.0.self_attn.k_proj.weight', nor can they be "
                             "shared by so many ranks"));
  config = small_model("llama3-mini");
  config.model.mlp_width = 44;
  CHECK_THAT(refusal(config, 2),
             Catch::Contains("sharding.grid 8 does not divide the 44 channels"));
  config = small_model(kQwen3Moe);
  config.model.expert_width = 12;
  CHECK_THAT(refusal(config, 2),
             Catch::Contains("sharding.grid 8 does not divide the 12 channels of "
                             "'model.layers.0.mlp.experts.gate_up_proj'"));
  config = small_model("gpt2-mini");
  config.sharding.grid = 2;
  CHECK_THAT(refusal(config, 4), Catch::Contains("sharding.grid 2 is no multiple of "
                                                 "sharding.tensor_parallel 4"));
  CHECK_THAT(refusal(config, 3), Catch::Contains("expected a power of two"));
}

TEST_CASE("tensor ranks: without a grid the losses are those of one rank, to rounding") {
  for (const char* preset : {"gpt2-mini", "llama3-mini", kQwen3Moe, kLlama4}) {
    Config config = small_model(preset);
    config.sharding.grid = 0;
    if (config.model.preset == "llama3-mini") config.model.kv_heads = 2;
    const TrainedSession expected = train(config, 1);
    for (const auto& [ranks, context_ranks] : {std::pair(2, 1), {4, 1}, {2, 2}}) {
      config.sharding.context_parallel = context_ranks;
      const TrainedSession found = train(config, ranks, context_ranks);
      for (std::size_t i = 0; i < expected.losses.size(); ++i) {
        CAPTURE(preset, ranks, context_ranks, i);
        CHECK(found.losses[i] == Approx(expected.losses[i]).epsilon(1e-5));
        CHECK(found.norms[i] == Approx(expected.norms[i]).epsilon(1e-4));
      }
    }
  }
}

}  // namespace tessera
