// Random meshes: pipelines of tensor, context, expert and data ranks under every strategy, against the same
// run on the batch ranks alone.
//
// Each case draws a model, a mesh and options. With a grid its losses, norms and weights must have the bits
// of that run; memory and traffic must be the footprint's. The cases are the same in every run. TESSERA_RANDOM_CASES=10000 in the environment runs more of them; a mismatch
// prints the case and its number, and TESSERA_RANDOM_FIRST=NUMBER begins there.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "runtime/random.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

constexpr int kGrid = 8, kMostRanks = 8, kUsualCases = 24;
constexpr std::int64_t kLength = 32, kVocabulary = 37;

/// Draws for one case, addressed by its number.
class Draws {
 public:
  explicit Draws(std::uint64_t number) : random_(/*seed=*/12, "random meshes", number) {}
  std::uint64_t below(std::uint64_t bound) { return random_.below(next_++, bound); }
  bool coin() { return below(2) == 0; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

 private:
  RandomStream random_;
  std::uint64_t next_ = 0;
};

struct Case {
  Config config;
  /// The ranks that compute different rows.
  int batch_ranks = 1;
  bool documents = false;

  const ShardingConfig& mesh() const { return config.sharding; }
  int ranks() const {
    return batch_ranks * static_cast<int>(mesh().context_parallel * mesh().tensor_parallel *
                                          mesh().pipeline_parallel);
  }
  std::string name() const {
    return fmt::format(
        "{} kv heads {} {} batch {} pipeline {} ({}) context {} tensor {} expert {} {}, masters "
        "{}, "
        "moments {}, micro-batches {}{}",
        config.model.preset, config.model.kv_heads, name_of(mesh().strategy), batch_ranks,
        mesh().pipeline_parallel, enum_name(mesh().pipeline_schedule), mesh().context_parallel,
        mesh().tensor_parallel, mesh().expert_parallel, name_of(config.runtime.compute_dtype),
        name_of(config.optimizer.master_dtype), name_of(config.optimizer.state_dtype),
        config.data.accumulation_steps, documents ? " documents" : "");
  }
};

Case draw(std::uint64_t number) {
  Draws draws(number);
  Case drawn;
  Config& config = drawn.config;
  config.model = {.preset = draws.one_of({"gpt2-mini", "llama3-8b", "llama3-mini", "qwen3-mini",
                                          "qwen3-moe-mini", "llama4-mini"}),
                  .layers = 2,
                  .heads = 8,
                  .width = 32,
                  .context = kLength,
                  .vocab_size = kVocabulary};
  const std::string& preset = config.model.preset;
  const bool mixture = preset == "qwen3-moe-mini" || preset == "llama4-mini";
  if (preset != "gpt2-mini") config.model.kv_heads = draws.one_of({8, 8, 4, 2});
  if (preset != "gpt2-mini") config.model.head_size = 4;
  if (preset == "gpt2-mini" && draws.coin()) config.model.dropout = 0.2;
  if (mixture) {
    config.model.experts = 4;
    config.model.expert_width = 16;
  } else if (preset != "gpt2-mini") {
    config.model.mlp_width = 48;
  }
  if (preset == "llama4-mini") config.model.attention_chunk = 8;
  ShardingConfig& mesh = config.sharding;
  const auto strategy =
      draws.one_of({"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"});
  drawn.batch_ranks = draws.one_of({1, 1, 2, 4});
  config.data = {.batch_size = 4, .sequence_length = kLength};
  if (draws.coin()) {
    config.data.accumulation_steps = 4 / drawn.batch_ranks;
  }
  config = variant_of(config, strategy);
  mesh.grid = kGrid;
  mesh.tensor_parallel = mixture ? 1 : draws.one_of({1, 2, 4, 8});
  mesh.context_parallel = draws.one_of({1, 2, 4, 8});
  if (draws.coin()) mesh.context_exchange = KeyExchange::heads;
  mesh.pipeline_parallel = draws.one_of({1, 1, 2, 4});
  while (drawn.batch_ranks * mesh.pipeline_parallel > kMostRanks) mesh.pipeline_parallel /= 2;
  while (mesh.tensor_parallel * mesh.context_parallel > kGrid || drawn.ranks() > kMostRanks) {
    (mesh.context_parallel > 1 ? mesh.context_parallel : mesh.tensor_parallel) /= 2;
  }
  if (mesh.pipeline_parallel > 1) {
    mesh.pipeline_schedule =
        draws.one_of({PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
                      PipelineSchedule::interleaved});
    if (mesh.pipeline_schedule == PipelineSchedule::interleaved) {
      mesh.pipeline_chunks = mesh.pipeline_parallel == 2 ? 2 : 1;
      if (config.data.accumulation_steps % mesh.pipeline_parallel != 0) {
        mesh.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
        mesh.pipeline_chunks = 1;
      }
    }
  }
  if (mixture && mesh.context_parallel == 1 && drawn.batch_ranks > 1 && draws.coin())
    mesh.expert_parallel = 2;
  if (draws.coin()) mesh.activation_checkpointing = {.first = 0, .every = draws.one_of({1, 2})};
  mesh.reshard_group = draws.one_of({0, 1});
  mesh.live_gathers = draws.one_of({1, 2, 3});
  if (draws.coin()) config.runtime.compute_dtype = DType::bf16;
  if (draws.below(4) == 0) config.optimizer.master_dtype = DType::bf16;
  if (draws.below(4) == 0) config.optimizer.state_dtype = DType::bf16;
  config.optimizer.clip_norm = 0.1;
  drawn.documents = draws.coin();
  return drawn;
}

TrainedSession train(const Case& drawn, int ranks, Findings* findings) {
  test::Steps steps{.device = test::device(), .findings = findings};
  if (drawn.documents) {
    steps.source = test::two_documents(kLength, kVocabulary,
                                       [](std::int64_t row) { return 5 + 9 * (row % 3); });
  }
  return test::train_session(drawn.config, ranks, steps);
}

/// Empty, or what differs.
std::string difference(const Case& drawn) {
  Findings findings;
  const TrainedSession found = train(drawn, drawn.ranks(), &findings);
  Case alone = drawn;
  alone.config.sharding.tensor_parallel = alone.config.sharding.context_parallel = 1;
  alone.config.sharding.expert_parallel = alone.config.sharding.pipeline_parallel = 1;
  alone.config.sharding.pipeline_chunks = 1;
  const TrainedSession expected = train(alone, drawn.batch_ranks, nullptr);
  std::string text;
  for (const std::string& wrong : findings.wrong()) text += " " + wrong;
  if (found.losses != expected.losses) text += " losses";
  if (found.router_losses != expected.router_losses) text += " router losses";
  if (found.norms != expected.norms) text += " norms";
  if (found.weights != expected.weights) text += " weights";
  return text;
}

std::uint64_t number_in(const char* variable, std::uint64_t usual) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? usual : std::stoull(text);
}

}  // namespace

TEST_CASE("random meshes have the bits of the batch ranks alone") {
  const std::uint64_t first = number_in("TESSERA_RANDOM_FIRST", 0);
  const std::uint64_t count = number_in("TESSERA_RANDOM_CASES", kUsualCases);
  for (std::uint64_t number = first; number < first + count; ++number) {
    const Case drawn = draw(number);
    INFO("case " << number << ": " << drawn.name());
    std::string wrong;
    try {
      wrong = difference(drawn);
    } catch (const Error& error) {
      wrong = error.what();
    }
    CHECK(wrong == "");
  }
}

}  // namespace tessera
