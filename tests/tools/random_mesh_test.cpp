// Random meshes: pipelines of tensor, context, expert and data ranks under every strategy, against the same
// run on fewer ranks.
//
// Each case draws a model, a mesh and options. With a grid its losses, norms and weights must have the
// bits of the batch ranks alone. Without one tensor and context ranks choose the parts of sums, and the run
// must have the bits of one without pipeline and expert ranks. Memory and traffic must be the footprint's.
// Messages and computation are delayed by random times in every case, and not in the run that it is
// compared with. The cases are the same in every run. TESSERA_RANDOM_CASES=10000 in the environment runs
// more of them; a mismatch prints the case and its number, and TESSERA_RANDOM_FIRST=NUMBER begins there.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "runtime/random.h"
#include "tests/support/device.h"
#include "tests/tools/sessions.h"
#include "tools/config/optimizer_groups.h"
#include "tools/config/sharding_options.h"
#include "tools/train/run_data.h"

namespace tessera {
namespace {

using test::Findings;
using test::TrainedSession;

constexpr int kUsualCases = 24;
/// One case in kManyEvery may have kManyRanks.
constexpr int kMostRanks = 8, kManyRanks = 16, kManyEvery = 16;
constexpr std::int64_t kLength = 32, kVocabulary = 37, kRows = 4;

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
  bool documents = false, mixture = false;

  const ShardingConfig& mesh() const { return config.sharding; }
  int ranks() const {
    return batch_ranks * static_cast<int>(mesh().context_parallel * mesh().tensor_parallel *
                                          mesh().pipeline_parallel);
  }
  /// The run that has the same bits.
  Case reference() const {
    Case fewer = *this;
    ShardingConfig& sharding = fewer.config.sharding;
    sharding.pipeline_parallel = sharding.pipeline_chunks = 1;
    // Sums over expert ranks come before those over context ranks, and fast ones depend on their number.
    const bool without = mesh().context_parallel == 1 || mesh().grid > 0;
    if (without && mesh().expert_sums == ExpertSums::exact) sharding.expert_parallel = 1;
    sharding.tensor_exchange = RowExchange::together;
    fewer.config.runtime.overlap_update = false;
    if (mesh().grid > 0) sharding.tensor_parallel = sharding.context_parallel = 1;
    return fewer;
  }
  std::string groups_text() const {
    std::vector<OptimizerGroupConfig> groups = config.optimizer.groups;
    return optimizer_groups_key(groups).text();
  }
  std::string name() const {
    return fmt::format(
        "{} kv heads {} {} batch {} grid {} pipeline {} ({} x {}) context {} ({}) tensor {} ({}) "
        "expert {} ({}, {}) {} by {}, {} in {}, masters {}, moments {}, gradients {}, groups {}, "
        "ema {}, "
        "micro-batches {} reduced by {}, balance {}{} adapter {} {} {} {}, watch {}, qk_clip {}, "
        "ramp {}, overlap {}, {}",
        config.model.preset, config.model.kv_heads, name_of(mesh().strategy), batch_ranks,
        mesh().grid, mesh().pipeline_parallel, enum_name(mesh().pipeline_schedule),
        mesh().pipeline_chunks, mesh().context_parallel, enum_name(mesh().context_exchange),
        mesh().tensor_parallel, enum_name(mesh().tensor_exchange), mesh().expert_parallel,
        enum_name(mesh().expert_sums), enum_name(mesh().expert_copies),
        name_of(config.runtime.compute_dtype), enum_name(config.runtime.fp8_scales),
        enum_name(config.optimizer.name), name_of(config.optimizer.muon_ns_dtype),
        name_of(config.optimizer.master_dtype), name_of(config.optimizer.state_dtype),
        name_of(config.optimizer.gradient_dtype), groups_text(), config.train.ema,
        config.data.accumulation_steps, enum_name(mesh().reduce),
        config.moe.balance ? enum_name(*config.moe.balance) : "auto",
        documents ? " documents"
        : mixture ? " mixture"
                  : "",
        config.adapter.rank, config.adapter.dropout, config.adapter.targets,
        config.adapter.base ? enum_name(*config.adapter.base) : "auto", config.train.watch,
        config.optimizer.qk_clip, config.train.batch_ramp.size(), config.runtime.overlap_update,
        enum_name(config.train.objective));
  }
};

/// A schedule that suits the stages and micro-batches.
void draw_schedule(Draws& draws, Config& config, bool can_reduce_once) {
  ShardingConfig& mesh = config.sharding;
  const std::int64_t micro_batches = config.data.accumulation_steps;
  mesh.pipeline_schedule =
      draws.one_of({PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward,
                    PipelineSchedule::interleaved, PipelineSchedule::zero_bubble});
  if (mesh.pipeline_schedule == PipelineSchedule::interleaved) {
    if (micro_batches % mesh.pipeline_parallel == 0) {
      mesh.pipeline_chunks = mesh.pipeline_parallel == 2 ? 2 : 1;
    } else {
      mesh.pipeline_schedule = PipelineSchedule::one_forward_one_backward;
    }
  }
  if (mesh.pipeline_schedule == PipelineSchedule::zero_bubble && micro_batches > 1) {
    if (can_reduce_once) {
      mesh.reduce = ReduceAfter::last_micro_batch;
    } else {
      mesh.pipeline_schedule = PipelineSchedule::gpipe;
    }
  }
}

/// Groups of the optimizer with other state.
void draw_groups(Draws& draws, Config& config) {
  OptimizerConfig& optimizer = config.optimizer;
  // SGD does not round at random.
  const bool rounds = optimizer.master_dtype == DType::bf16 || optimizer.state_dtype == DType::bf16;
  const OptimizerGroupConfig sgd = {
      .match = draws.one_of({"vectors", "tables", "matrices", "*.0.*", "*.weight"}),
      .keys = {{"name", "sgd"}, {"momentum", draws.one_of({"0", "0.9"})}}};
  const OptimizerGroupConfig adamw = {
      .match = draws.one_of({"*.1.*", "matrices, tables", "*.0.*weight"}),
      .keys = {{"learning_rate_factor", "0.5"},
               {"state_dtype", draws.one_of({"f32", "bf16"})},
               {"weight_decay", "0.2"}}};
  if (draws.coin()) return;
  if (!rounds) optimizer.groups.push_back(sgd);
  const bool has_all = !rounds && (sgd.match == "*.weight" || sgd.match == "*.0.*");
  if (!has_all) optimizer.groups.push_back(adamw);
}

/// Muon for matrices, in half of the cases without state that is rounded at random.
void draw_muon(Draws& draws, Config& config) {
  OptimizerConfig& optimizer = config.optimizer;
  optimizer.muon_scale = draws.one_of({UpdateScale::original, UpdateScale::match_rms_adamw});
  optimizer.muon_ns_dtype = draws.one_of({DType::f32, DType::bf16});
  const bool rounds = optimizer.master_dtype == DType::bf16 || optimizer.state_dtype == DType::bf16;
  if (rounds || draws.coin()) return;
  optimizer.name = OptimizerKind::muon;
  for (OptimizerGroupConfig& group : optimizer.groups) group.keys.erase("state_dtype");
}

Case draw(std::uint64_t number) {
  Draws draws(number);
  Case drawn;
  Config& config = drawn.config;
  config.model = {
      .preset = draws.one_of({"gpt2-mini", "llama3-8b", "llama3-mini", "qwen3-mini",
                              "qwen3-moe-mini", "llama4-mini", "llama4-scout", "gemma3-mini"}),
      .layers = 2,
      .heads = 8,
      .width = 32,
      .context = kLength,
      .vocab_size = kVocabulary};
  const std::string& preset = config.model.preset;
  const bool llama4 = preset.starts_with("llama4");
  const bool mixture = preset == "qwen3-moe-mini" || llama4;
  const bool tied = preset != "llama3-8b" && preset != "llama4-scout";
  if (preset != "gpt2-mini") config.model.kv_heads = draws.one_of({8, 8, 4, 2});
  if (preset != "gpt2-mini") config.model.head_size = 4;
  if (preset == "gpt2-mini" && draws.coin()) config.model.dropout = 0.2;
  if (mixture) {
    config.model.experts = 4;
    config.model.expert_width = 16;
  }
  if (preset != "gpt2-mini" && preset != "qwen3-moe-mini") config.model.mlp_width = 48;
  if (llama4) config.model.attention_chunk = 8;
  ShardingConfig& mesh = config.sharding;
  const auto strategy =
      draws.one_of({"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_flat", "hsdp"});
  drawn.batch_ranks = draws.one_of({1, 1, 2, 4});
  config.data = {.batch_size = kRows, .sequence_length = kLength};
  if (draws.coin()) {
    config.data.accumulation_steps = 4 / drawn.batch_ranks;
  }
  config = variant_of(config, strategy);
  mesh.grid = draws.one_of({0, 2, 4, 8});
  const bool grid = mesh.grid > 0;
  const int most_ranks = draws.below(kManyEvery) == 0 ? kManyRanks : kMostRanks;
  mesh.pipeline_parallel = draws.one_of({1, 1, 2, 4});
  while (drawn.batch_ranks * mesh.pipeline_parallel > most_ranks) mesh.pipeline_parallel /= 2;
  mesh.tensor_parallel = draws.one_of({1, 2, 4, 8});
  mesh.context_parallel = draws.one_of({1, 2, 4, 8});
  if (draws.coin()) mesh.context_exchange = KeyExchange::heads;
  while ((grid && mesh.tensor_parallel * mesh.context_parallel > mesh.grid) ||
         drawn.ranks() > most_ranks) {
    (mesh.context_parallel > 1 ? mesh.context_parallel : mesh.tensor_parallel) /= 2;
  }
  const bool can_reduce_once =
      !(tied && mesh.pipeline_parallel > 1) && !(grid && mesh.context_parallel > 1);
  if (can_reduce_once && draws.coin()) mesh.reduce = ReduceAfter::last_micro_batch;
  if (mesh.pipeline_parallel > 1) draw_schedule(draws, config, can_reduce_once);
  if (mixture && !(grid && mesh.context_parallel > 1) && drawn.batch_ranks > 1 && draws.coin()) {
    mesh.expert_parallel = 2;
    if (draws.coin()) mesh.expert_sums = ExpertSums::fast;
    if (draws.coin()) mesh.expert_copies = ExpertCopies::each_rank;
  }
  if (draws.coin()) mesh.activation_checkpointing = {.first = 0, .every = draws.one_of({1, 2})};
  mesh.reshard_group = draws.one_of({0, 1});
  mesh.live_gathers = draws.one_of({1, 2, 3});
  if (draws.coin()) config.runtime.compute_dtype = DType::bf16;
  if (draws.below(4) == 0) config.optimizer.master_dtype = DType::bf16;
  if (draws.below(4) == 0) config.optimizer.state_dtype = DType::bf16;
  config.optimizer.clip_norm = 0.1;
  drawn.documents = draws.coin();
  if (mixture && mesh.context_parallel == 1 && draws.coin()) {
    config.moe.balance = Balance::hf;
    config.moe.loss_coefficient = 0.5;
  }
  if (draws.coin()) mesh.tensor_exchange = RowExchange::by_rank;
  draw_groups(draws, config);
  if (draws.coin()) config.train.ema = 0.75;
  draw_muon(draws, config);
  if (mesh.tensor_parallel == 1 && draws.coin()) {
    config.adapter.rank = draws.one_of({1, 3, 8});
    if (draws.coin()) config.adapter.dropout = 0.3;
    const bool some = draws.coin();
    if (some)
      config.adapter.targets = preset == "gpt2-mini" ? "c_attn,*.1.mlp.*" : "q_proj,v_proj,*.1.*";
    if (draws.coin()) config.adapter.base = AdapterBase::nf4;
  }
  drawn.mixture = !drawn.documents && draws.coin();
  if (draws.coin()) config.train.watch = 1;
  if (drawn.documents && !grid && mesh.context_parallel == 1) {
    config.train.objective =
        draws.one_of({Objective::next_token, Objective::dpo, Objective::ipo, Objective::simpo});
    if (compares_pairs(config.train.objective)) config.data.rows = RowKind::packed;
  }
  const bool clips = config.optimizer.name == OptimizerKind::muon && config.adapter.rank == 0 &&
                     (preset == "gpt2-mini" || preset.starts_with("llama3"));
  if (clips && draws.coin()) config.optimizer.qk_clip = 1e-3;
  // Steps are the numbers of their batches, so the last step is a full one, whose bytes are planned. Averages
  // are measured on the rows of a full batch 0.
  const bool halves = kRows / 2 % (config.data.accumulation_steps * drawn.batch_ranks) == 0;
  if (drawn.mixture && halves && config.train.ema == 0.0 && draws.coin()) {
    config.train.batch_ramp = {{.batches = 2, .rows = kRows / 2}};
  }
  if (config.train.objective == Objective::next_token && draws.below(4) == 0) {
    config.train.objective = Objective::distill;
    config.distill = {.top_k = draws.one_of({1, 3, 8}), .weight = draws.one_of({0.3, 1.0})};
  }
  if (config.runtime.compute_dtype == DType::bf16 && draws.coin()) {
    config.runtime.compute_dtype = ComputeDtype::eight_bits();
    config.runtime.fp8_gradients = draws.one_of({DType::e5m2, DType::e4m3});
    // Tensor ranks would need many channels to have whole blocks.
    const bool has_blocks = !mixture && mesh.tensor_parallel == 1;
    if (has_blocks && draws.coin()) config.runtime.fp8_scales = Fp8Scales::blocks;
  }
  // Experts' sums are rounded among their ranks first, and the reference has none of these.
  const bool sums_once = config.data.accumulation_steps == 1 && mesh.pipeline_parallel == 1 &&
                         !grid && mesh.expert_parallel == 1;
  if (sums_once && config.runtime.compute_dtype == DType::bf16 && draws.coin()) {
    config.optimizer.gradient_dtype = DType::bf16;
  }
  if (config.optimizer.name != OptimizerKind::muon) config.runtime.overlap_update = draws.coin();
  return drawn;
}

/// Rows of three sources, the third from the second step on.
const TokenLoader& mixed_rows() {
  static const TokenLoader loader = [] {
    std::vector<RowSource> sources;
    for (const char* kind : {"uniform", "zipf", "copy"}) {
      sources.emplace_back(TokenCorpus::open(std::string("synthetic:") + kind, kVocabulary),
                           kLength, SampleOrder::shuffled, /*seed=*/1, std::nullopt,
                           RowKind::windows);
    }
    std::vector<Mixture::Source> sizes;
    for (const RowSource& source : sources) sizes.push_back({source.samples(), source.inputs()});
    const std::vector<MixturePart> parts = {
        {.source = 0, .weight = 0.5}, {.source = 1, .weight = 0.2}, {.source = 2, .from_step = 2}};
    return TokenLoader(std::move(sources), Mixture(parts, sizes, MixtureKind::by_tokens, kRows));
  }();
  return loader;
}

TrainedSession train(const Case& drawn, test::Steps steps) {
  steps.device = test::device();
  if (drawn.documents) {
    steps.source = test::two_documents(kLength, kVocabulary,
                                       [](std::int64_t row) { return 5 + 9 * (row % 3); });
    if (compares_pairs(drawn.config.train.objective)) {
      steps.source = test::two_answers(*steps.source);
    }
  }
  if (drawn.mixture) {
    steps.source = batches_of(mixed_rows(), /*first_step=*/0, batch_sizes(drawn.config));
  }
  if (drawn.config.train.objective == Objective::distill) {
    const BatchSource source =
        steps.source ? *steps.source : random_tokens(drawn.config.data, kVocabulary);
    steps.source = test::with_teacher(source, drawn.config.distill, kVocabulary);
  }
  return test::train_session(drawn.config, drawn.ranks(), steps);
}

/// A stage adds up the losses of its layers' routers first, so a pipeline has them to rounding.
bool same_router_losses(const Case& drawn, const TrainedSession& found,
                        const TrainedSession& expected) {
  const std::vector<double>&a = found.router_losses, &b = expected.router_losses;
  const auto near = [](double x, double y) { return x == Approx(y).epsilon(1e-6); };
  return drawn.mesh().pipeline_parallel > 1
             ? std::equal(a.begin(), a.end(), b.begin(), b.end(), near)
             : a == b;
}

/// The readings of a watched step that differ: " router_entropy: [0.5,null] and [0.25,null]".
std::string different_readings(const std::vector<UnitReadings>& found,
                               const std::vector<UnitReadings>& expected) {
  const nlohmann::ordered_json a = json_of(found), b = json_of(expected);
  std::string text;
  for (const auto& [name, values] : a.items()) {
    if (values != b[name])
      text += fmt::format(" {}: {} and {}", name, values.dump(), b[name].dump());
  }
  return text;
}

/// Empty, or the differences.
std::string difference(const Case& drawn, std::uint64_t delay_seed) {
  Findings findings;
  const TrainedSession found = train(drawn, {.findings = &findings, .delay_seed = delay_seed});
  const TrainedSession expected = train(drawn.reference(), {});
  std::string text;
  for (const std::string& wrong : findings.wrong()) text += " " + wrong;
  if (found.losses != expected.losses) text += " losses";
  if (!same_router_losses(drawn, found, expected)) text += " router losses";
  if (found.norms != expected.norms) text += " norms";
  if (found.weights != expected.weights) text += " weights";
  if (found.watch != expected.watch) text += different_readings(found.watch, expected.watch);
  return text;
}

std::uint64_t number_in(const char* variable, std::uint64_t usual) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? usual : std::stoull(text);
}

}  // namespace

TEST_CASE("random meshes, delayed at random, have the bits of fewer ranks") {
  const std::uint64_t first = number_in("TESSERA_RANDOM_FIRST", 0);
  const std::uint64_t count = number_in("TESSERA_RANDOM_CASES", kUsualCases);
  for (std::uint64_t number = first; number < first + count; ++number) {
    const Case drawn = draw(number);
    INFO("case " << number << ": " << drawn.name());
    std::string wrong;
    try {
      wrong = difference(drawn, number);
    } catch (const Error& error) {
      wrong = error.what();
    }
    CHECK(wrong == "");
  }
}

}  // namespace tessera
