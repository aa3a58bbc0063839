#include "tools/config/keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/router/op.h"
#include "models/registry.h"
#include "tools/config/key_types.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

// The bounds of sizes: far above every use, and far below an overflow of their products with the
// size of an element. tools/train/resolve.cpp bounds the products themselves.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostSeed = std::int64_t{1} << 62;

constexpr Bounds kFromZero = {.least = 0.0};
constexpr Bounds kAboveZero = {.least = 0.0, .least_excluded = true};
constexpr Bounds kShare = {.least = 0.0, .most = 1.0};
constexpr Bounds kBelowOne = {.least = 0.0, .most = 1.0, .most_excluded = true};

/// A dtype with one of these names.
Key dtype_key(std::string name, DType& field, std::span<const std::string_view> names,
              std::string documentation) {
  const auto write = [](DType dtype) { return name_of(dtype); };
  return name_key(std::move(name), field, names, dtype_from_name, write, std::move(documentation));
}

/// A dtype that training computes and reduces in.
Key training_dtype_key(std::string name, DType& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"f32", "bf16", "f16"};
  return dtype_key(std::move(name), field, kNames, std::move(documentation));
}

/// A dtype that the optimizer keeps between steps.
Key kept_dtype_key(std::string name, DType& field, std::string documentation) {
  static constexpr std::string_view kNames[] = {"f32", "bf16"};
  return dtype_key(std::move(name), field, kNames, std::move(documentation));
}

Key preset_key(std::string name, std::string& field, std::string documentation) {
  static const std::vector<std::string_view> presets = model_presets();
  const auto copy = [](std::string_view text) { return std::string(text); };
  return name_key(std::move(name), field, presets, copy, copy, std::move(documentation));
}

Key device_key(std::string name, std::optional<Device>& field, std::string documentation) {
  using Choice = std::optional<Device>;
  const auto parse = [](std::string_view text) -> std::optional<Choice> {
    if (text == "auto") return std::make_optional<Choice>();
    const std::optional<Device> device = parse_device(text);
    if (!device) return std::nullopt;
    return std::make_optional<Choice>(*device);
  };
  const auto write = [](const std::optional<Device>& device) {
    return device ? to_string(*device) : "auto";
  };
  return form_key(std::move(name), field, "auto, cpu, cuda or a GPU by number such as cuda:1",
                  parse, write, std::move(documentation));
}

/// One of the names of an enumeration, or `auto`.
template <typename Enum>
Key choice_or_auto_key(std::string name, std::optional<Enum>& field, std::string documentation) {
  using Choice = std::optional<Enum>;
  const auto parse = [](std::string_view text) -> std::optional<Choice> {
    if (text == "auto") return std::make_optional<Choice>();
    for (const std::string_view name : enum_names<Enum>()) {
      if (text == name) return std::make_optional<Choice>(enum_from_name<Enum>(name));
    }
    return std::nullopt;
  };
  const auto write = [](const Choice& choice) {
    return choice ? enum_name(*choice) : std::string_view("auto");
  };
  return form_key(std::move(name), field, "auto or " + one_of(enum_names<Enum>()), parse, write,
                  std::move(documentation));
}

/// "10-12" or "10", of at most kMostProfiled steps.
std::optional<StepRange> parse_steps(std::string_view text) {
  constexpr std::int64_t kMostProfiled = 100;
  if (text.empty()) return StepRange();
  const std::size_t dash = text.find('-');
  const auto first = whole_number_from(text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : whole_number_from(text.substr(dash + 1));
  const bool good = first && last && *first >= 1 && *first <= *last && *last <= kMostSteps &&
                    *last - *first < kMostProfiled;
  return good ? std::optional(StepRange{*first, *last}) : std::nullopt;
}

std::string steps_text(const StepRange& steps) {
  return steps.last == 0 ? "" : fmt::format("{}-{}", steps.first, steps.last);
}

std::vector<Key> model_keys(ModelConfig& model) {
  return {
      preset_key(
          "model.preset", model.preset,
          "Sizes to start from: the published ones, or one that ends in `-mini` for a laptop. "
          "The keys below override them one by one."),
      whole_number_key("model.layers", model.layers, 0, LargestSizes::layers,
                       "Number of blocks; 0 = the preset's."),
      whole_number_key("model.heads", model.heads, 0, LargestSizes::heads,
                       "Attention heads per block, a divisor of the width; 0 = the preset's."),
      whole_number_key("model.width", model.width, 0, LargestSizes::width,
                       "Size of an embedding; 0 = the preset's."),
      whole_number_key("model.context", model.context, 0, LargestSizes::context,
                       "Longest sequence that the model can read; 0 = the preset's."),
      whole_number_key("model.vocab_size", model.vocab_size, 0, LargestSizes::vocab_size,
                       "Number of different tokens; 0 = from the manifest next to `data.train`, or "
                       "the preset's if there is no manifest."),
      whole_number_key("model.kv_heads", model.kv_heads, 0, LargestSizes::heads,
                       "Heads of keys and values, a divisor of `model.heads`; 0 = the preset's. "
                       "GPT-2 has as many as `model.heads`."),
      whole_number_key("model.head_size", model.head_size, 0, LargestSizes::width,
                       "Channels of an attention head; 0 = the preset's, which is mostly the width "
                       "divided by the heads. GPT-2 has no other."),
      whole_number_key("model.mlp_width", model.mlp_width, 0, LargestSizes::width,
                       "Channels inside the feed-forward layer; 0 = the preset's. GPT-2 has four "
                       "times the width."),
      whole_number_key("model.experts", model.experts, 0, kMostExperts,
                       "Experts of a layer; 0 = the preset's. Only mixtures of experts have any."),
      whole_number_key("model.experts_per_token", model.experts_per_token, 0, kMostExperts,
                       "Experts that a token takes; 0 = the preset's."),
      whole_number_key("model.expert_width", model.expert_width, 0, LargestSizes::width,
                       "Channels inside an expert; 0 = the preset's."),
      whole_number_key("model.attention_chunk", model.attention_chunk, 0, LargestSizes::context,
                       "Llama 4: tokens in a chunk. In layers with RoPE a token attends to its own "
                       "chunk only; 0 = the preset's."),
      choice_or_auto_key(
          "model.rope_angles", model.rope_angles,
          "How the angles of rotary positions are computed. `exact`: in f64. `f32`: as "
          "Transformers "
          "computes them, for equal numbers at far positions; the model's config.json says so. "
          "`auto` = as `model.init_from` has it, else `exact`."),
      number_key("model.dropout", model.dropout, kBelowOne,
                 "Probability of dropping an activation in training; GPT-2 only."),
      path_key(
          "model.init_from", model.init_from,
          "Folder with a model to start from: `model.safetensors` and `config.json`, as "
          "Hugging Face or `tessera train` writes them; or `org/name`, a model that `hf "
          "download` has put into the cache below HF_HOME. Its sizes replace the preset's. Its "
          "tokenizer, if it has one, must be the data's. Empty = random initialization."),
      text_key(
          "model.frozen", model.frozen,
          "Parameters that are not trained: prefixes of their names, separated by commas, "
          "such as `transformer.wte,transformer.h.0.`; empty = all are trained. They are kept in "
          "`runtime.compute_dtype`: a 16-bit run saves their rounded values."),
  };
}

std::vector<Key> moe_keys(MoeConfig& moe) {
  return {
      choice_or_auto_key(
          "moe.balance", moe.balance,
          "How the experts' loads are kept alike. `bias`: a bias per expert, added for the choice "
          "only, moves once per step against the expert's load; the model's files hold it. "
          "`lagged`: a loss on the loads of the step before. `hf`: Transformers' loss on the loads "
          "of the micro-batch; it depends on how a step is cut into micro-batches. `auto` = `bias` "
          "for a model with random weights or with biases, else `none`."),
      number_key("moe.bias_rate", moe.bias_rate, kFromZero,
                 "bias: how far a bias moves in a step."),
      number_key("moe.loss_coefficient", moe.loss_coefficient, kFromZero,
                 "lagged, hf: the factor of the balance loss, which is `experts_per_token` in "
                 "perfect balance."),
      number_key("moe.z_loss", moe.z_loss, kFromZero,
                 "The factor of the router z-loss, the mean square of the logits' logsumexp, which "
                 "keeps logits small; 0 = none."),
      flag_key("moe.force_balance", moe.force_balance,
               "For benchmarks: tokens take the experts in turn, whatever the router says."),
  };
}

std::vector<Key> data_keys(DataConfig& data) {
  return {
      path_key(
          "data.train", data.train,
          "Token files to train on, as `tessera prepare` writes them: llm.c's format, with ids "
          "of 16 or 32 bits. A path, a pattern such as `data/train_*.bin`, or several "
          "separated by commas; or `synthetic:uniform`, `synthetic:zipf` or "
          "`synthetic:copy`. Training needs this."),
      path_key("data.val", data.val,
               "Token files to measure the validation loss on; empty = no validation."),
      whole_number_key("data.batch_size", data.batch_size, 1, kMostTokens,
                       "Sequences per training step, over all ranks and micro-batches."),
      whole_number_key("data.rows_per_rank", data.rows_per_rank, 0, kMostTokens,
                       "Sequences per training step of each rank, over its micro-batches, instead "
                       "of `data.batch_size`; the batch then grows with the ranks. 0 = "
                       "`data.batch_size`."),
      whole_number_key("data.sequence_length", data.sequence_length, 1, kMostTokens,
                       "Tokens per sequence; at most the model's context."),
      whole_number_key("data.accumulation_steps", data.accumulation_steps, 1, kMostTokens,
                       "Micro-batches that each rank's part of a step is cut into, to need less "
                       "memory. The batch size is a multiple of this times the number of ranks."),
      text_key("data.document_token", data.document_token,
               "The token at which a document starts, as its number or as the data's tokenizer "
               "spells it, such as `<s>`. Tokens then attend to their own document only, and "
               "positions count from its start; so packed documents give the numbers of each "
               "alone. Empty = a sequence is one document."),
      path_key("data.hellaswag", data.hellaswag,
               "Multiple-choice questions in llm.c's file format, as its dev/data/hellaswag.py "
               "writes them; see `train.hellaswag_every`. Empty = none."),
      choice_key("data.rows", data.rows,
                 "What fills a sequence. `windows`: neighbouring tokens, whatever documents they "
                 "cut. `packed`: as many whole documents as fit, which do not see each other. "
                 "`padded`: one document. A longer document is cut into several. `packed` and "
                 "`padded` need `data.document_token`, or data with marks of its samples."),
  };
}

std::vector<Key> optimizer_keys(OptimizerConfig& optimizer) {
  return {
      choice_key("optimizer.name", optimizer.name, "The update rule."),
      number_key("optimizer.learning_rate", optimizer.learning_rate, kFromZero,
                 "Learning rate after the warm-up."),
      choice_key("optimizer.schedule", optimizer.schedule,
                 "How the learning rate falls after the warm-up."),
      whole_number_key("optimizer.warmup_steps", optimizer.warmup_steps, 0, kMostSteps,
                       "Steps over which the learning rate rises linearly from zero."),
      whole_number_key("optimizer.decay_steps", optimizer.decay_steps, 0, kMostSteps,
                       "warmup_stable_decay: how many of the last steps decay. (linear and cosine "
                       "decay from the warm-up to the last step.)"),
      number_key("optimizer.minimum_learning_rate_ratio", optimizer.minimum_learning_rate_ratio,
                 kShare, "Where the decay ends, as a fraction of `optimizer.learning_rate`."),
      number_key("optimizer.beta1", optimizer.beta1, kBelowOne,
                 "adamw: decay of the average of gradients."),
      number_key("optimizer.beta2", optimizer.beta2, kBelowOne,
                 "adamw: decay of the average of squared gradients."),
      number_key("optimizer.epsilon", optimizer.epsilon, kAboveZero,
                 "adamw: added to the root of the average of squared gradients."),
      number_key("optimizer.weight_decay", optimizer.weight_decay, kFromZero,
                 "Weight decay (decoupled for adamw). Norms and biases never decay."),
      number_key("optimizer.momentum", optimizer.momentum, kBelowOne, "sgd: momentum."),
      flag_key("optimizer.nesterov", optimizer.nesterov, "sgd: Nesterov's form of the momentum."),
      number_key("optimizer.clip_norm", optimizer.clip_norm, kFromZero,
                 "Largest global norm of the gradient. A longer gradient is scaled down to it; 0 = "
                 "no clipping."),
      kept_dtype_key(
          "optimizer.master_dtype", optimizer.master_dtype,
          "adamw: the dtype of the masters, the values that updates are added to. `bf16` "
          "saves 2 bytes per parameter; each update is then rounded up or down at random, "
          "so that its mean is right."),
      kept_dtype_key("optimizer.state_dtype", optimizer.state_dtype,
                     "adamw: the dtype of the two moments. `bf16` saves 4 bytes per parameter and "
                     "is rounded at random, too."),
  };
}

std::vector<Key> sharding_keys(ShardingConfig& sharding) {
  return {
      choice_key("sharding.strategy", sharding.strategy,
                 "How parameters, gradients and optimizer state are spread over ranks; `single`: "
                 "one rank holds everything."),
      flag_key("sharding.flatten_parameters", sharding.flatten_parameters,
               "fsdp, hsdp: cut a bucket as one vector (FSDP1), not every parameter by rows "
               "(FSDP2)."),
      whole_number_key(
          "sharding.shard_size", sharding.shard_size, 0, kMostRanks,
          "hsdp: ranks that share one replica, neighbours; 0 = the ranks of a node, or "
          "half of all ranks on one node, rounded down to a power of two."),
      whole_number_key(
          "sharding.expert_parallel", sharding.expert_parallel, 1, kMostRanks,
          "Mixtures of experts: neighbouring ranks that share out the experts of each layer, "
          "whole; "
          "the rows of tokens travel to them. It divides the ranks and the experts. Results do not "
          "depend on it; 1 = experts are sharded as all other parameters."),
      choice_key(
          "sharding.expert_sums", sharding.expert_sums,
          "expert_parallel: how a rank adds up the gradients of its experts. `exact`: one for the "
          "rows of each rank, added in the tree of all sums, so that results do not depend on "
          "`expert_parallel`. `fast`: one for all rows; less memory and work, other rounding."),
      choice_key(
          "sharding.expert_copies", sharding.expert_copies,
          "expert_parallel: the copies of a token's row that travel to its experts. `each_expert`: "
          "one for each. `each_rank`: one for each rank that has any of them, which makes the "
          "others. Fewer bytes if tokens have several experts on a rank; no result depends on it."),
      whole_number_key(
          "sharding.expert_pieces", sharding.expert_pieces, 1, 64,
          "expert_parallel: pieces of a rank's tokens, a power of two. The rows of one piece "
          "travel while another computes. The experts' gradients of the pieces are added in a "
          "binary tree: other rounding."),
      whole_number_key(
          "sharding.tensor_parallel", sharding.tensor_parallel, 1, kMostRanks,
          "Neighbouring ranks that share out the channels of every layer, its heads and the "
          "vocabulary: a power of two. The strategy applies to the other ranks. 1 = every rank "
          "computes whole layers."),
      choice_key(
          "sharding.tensor_exchange", sharding.tensor_exchange,
          "With `tensor_parallel`: whether the rows of all ranks travel before and behind the "
          "products of a layer while computation waits (`together`), or the rows of one rank "
          "after another while others are multiplied (`by_rank`). Results on a CPU do not "
          "depend on it."),
      whole_number_key(
          "sharding.context_parallel", sharding.context_parallel, 1, kMostRanks,
          "Ranks that share out the tokens of every row: a power of two, c. Each has two of the "
          "row's "
          "2 c pieces, and attends to the keys of all. For parameters they are data ranks of the "
          "strategy. 2 c divides `data.sequence_length`. 1 = every rank has whole rows."),
      choice_key("sharding.context_exchange", sharding.context_exchange,
                 "With `context_parallel`: whether a rank gathers the keys and values of all heads "
                 "of a layer at once (`gather`), or of one head of keys at a time while the next "
                 "ones travel (`heads`): less memory, and messages under the computation. Results "
                 "do not depend on it."),
      whole_number_key(
          "sharding.grid", sharding.grid, 0, kMostRanks,
          "Sums that tensor-parallel or context-parallel ranks divide are formed as this many "
          "parts, "
          "a power of two, and added in a binary tree. So every `tensor_parallel` and "
          "`context_parallel` that divides it has the same bits. Twice the number divides "
          "`data.sequence_length`. 0 = as many parts as ranks."),
      whole_number_key(
          "sharding.pipeline_parallel", sharding.pipeline_parallel, 1, kMostRanks,
          "Ranks that have one stage of the model each, a run of its layers; micro-batches "
          "(`data.accumulation_steps`) go from stage to stage. The strategy applies to the ranks "
          "of a stage. Results do not depend on it; 1 = every rank computes all layers."),
      choice_key("sharding.pipeline_schedule", sharding.pipeline_schedule,
                 "The order in which a stage runs the passes of its micro-batches. `interleaved` "
                 "needs a multiple of `pipeline_parallel` micro-batches."),
      whole_number_key("sharding.pipeline_chunks", sharding.pipeline_chunks, 1, 1024,
                       "interleaved: stages of each rank."),
      text_key("sharding.pipeline_stages", sharding.pipeline_stages,
               "The units at which stages begin, besides the first, such as `h.4,h.8`; empty = the "
               "stage with the most parameters has as few as possible."),
      form_key(
          "sharding.rules", sharding.rules, "rules such as `*.bias -> ddp, *.mlp.* -> hsdp`",
          [](std::string_view text) { return std::optional(parse_placement_rules(text)); },
          [](const std::vector<PlacementRule>& rules) { return to_string(rules); },
          "Another strategy for the parameters whose whole names match a pattern, in which `*` "
          "stands for any text. The first rule that matches counts; `fsdp_flat` and `hsdp_flat` "
          "flatten. Settings may follow the strategy, as in `*.mlp.* -> fsdp "
          "reshard_after_forward=false`: `reshard_after_forward`, `compute_dtype`, `reduce_dtype`, "
          "`offload`. In YAML, put the rules in quotes. Empty = one strategy for all."),
      text_key("sharding.buckets", sharding.buckets,
               "The groups of parameters that travel together: `unit` = each unit of the model by "
               "itself (the embedding, every block); a number = neighbouring units, until they "
               "have so many parameters; names of units such as `h.0,h.4` = a bucket begins at "
               "each."),
      form_key("sharding.reshard_after_forward", sharding.reshard_group,
               "true, false or a number of ranks >= 2", parse_reshard, reshard_text,
               "zero3, fsdp, hsdp: reshard parameters between forward and backward. `false` keeps "
               "them gathered; a number (fsdp, hsdp) keeps them sharded over groups of so many "
               "ranks only."),
      whole_number_key("sharding.live_gathers", sharding.live_gathers, 1, 1024,
                       "zero3, fsdp, hsdp: how many buckets may be gathered at a time, besides the "
                       "embedding; 1 = no prefetching."),
      choice_key("sharding.prefetch", sharding.prefetch,
                 "zero3, fsdp, hsdp: in which pass the next bucket is gathered while this one "
                 "computes."),
      choice_key("sharding.reduce", sharding.reduce,
                 "With several micro-batches: reduce the gradients of each, or keep whole "
                 "gradients on every rank and reduce their sum: less traffic, more memory, other "
                 "rounding."),
      flag_key("sharding.sum_replicas_once", sharding.sum_replicas_once,
               "hsdp that reduces every micro-batch: sum across the replicas after the last one "
               "only: one sum per step on the links between nodes, other rounding."),
      training_dtype_key("sharding.reduce_dtype", sharding.reduce_dtype,
                         "The dtype that gradients are sent in; sums over ranks are formed in f32 "
                         "in any case."),
      choice_key(
          "sharding.communicator", sharding.communicator,
          "How ranks exchange tensors. `auto` takes NCCL where ranks have a GPU each and the "
          "build has it. Otherwise threads of one process read each other's memory, and "
          "processes use MPI."),
      flag_key("sharding.deterministic", sharding.deterministic,
               "nccl: form sums over ranks in the order of the other communicators, not in NCCL's "
               "own: the same bits on any machine, for more messages."),
      choice_key(
          "sharding.check_collectives", sharding.check_collectives,
          "When ranks compare their collective calls one by one. `first_steps`: in the first "
          "two steps, and after that once per step."),
      whole_number_key("sharding.check_replicas", sharding.check_replicas, 0, kMostSteps,
                       "ddp, hsdp: compare the ranks' checksums of reduced gradients and weights "
                       "every so many steps. A rank that differs from the ranks with the same part "
                       "is named, and the run stops. 0 = never."),
      whole_number_key("sharding.timeout", sharding.timeout, 1, 7 * 24 * 3600,
                       "Seconds that a rank waits for the others before it stops the run."),
      choice_key("sharding.offload", sharding.offload,
                 "Memory that a GPU leaves to the host: `optimizer` = masters and optimizer "
                 "state, which the CPU then updates; `all` (zero3, fsdp, hsdp) = the rank's parts "
                 "of parameters and gradients too. On the CPU it changes nothing. Results do not "
                 "depend on it."),
      form_key(
          "sharding.activation_checkpointing", sharding.activation_checkpointing,
          std::string(CheckpointingPolicy::kForms), parse_checkpointing,
          [](const CheckpointingPolicy& policy) { return to_string(policy); },
          "Blocks that keep only their input. The backward pass computes the rest again."),
  };
}

std::vector<Key> runtime_keys(RuntimeConfig& runtime) {
  return {
      device_key("runtime.device", runtime.device,
                 "Where the model runs. `auto`: on the first GPU, if this build has the CUDA "
                 "backend and the machine a GPU, otherwise on the CPU. With several ranks a GPU is "
                 "the first rank's; the next ranks have the next GPUs, and then the first ones "
                 "again."),
      whole_number_key("runtime.ranks", runtime.ranks, 0, 1024,
                       "Ranks, as threads of one process; `tessera train --ranks N` sets it. 0 = "
                       "1 rank; under `mpirun -np N tessera train`, one per process."),
      whole_number_key("runtime.threads", runtime.threads, 0, 4096,
                       "Threads per rank; 0 = a machine's cores shared among its ranks. Results do "
                       "not depend on it."),
      flag_key(
          "runtime.pin", runtime.pin,
          "CPUs: bind each thread of each rank to one core, among the cores that the process "
          "has. For a machine that does nothing else: two runs would take the same cores, and a "
          "bound thread waits for its core while others are idle."),
      flag_key(
          "runtime.graph", runtime.graph,
          "GPUs: the first step runs as always, the second is captured as a CUDA graph, and each "
          "later step is one launch of it, with the same bits. For models and micro-batches so "
          "small that a GPU waits for its host."),
      training_dtype_key("runtime.compute_dtype", runtime.compute_dtype,
                         "The dtype that parameters are gathered and computed with. The masters' "
                         "dtype is `optimizer.master_dtype`; f16 comes with dynamic loss scaling."),
      choice_or_auto_key("runtime.isa", runtime.isa,
                         "The instruction set of the CPU's kernels; auto = the best that the CPU "
                         "has. f32 results do not depend on it; those of bf16 products do."),
  };
}

std::vector<Key> kernels_keys(KernelsConfig& kernels) {
  return {
      choice_key("kernels.attention", kernels.attention,
                 "The attention kernels of a GPU. `tessera`: this project's. `cudnn`: cuDNN's, if "
                 "the build has it (bf16 or f16; heads of up to 128 channels, a multiple of 8)."),
      choice_key("kernels.cudnn_order", kernels.cudnn_order,
                 "The order in which cuDNN's attention adds gradients: the same in every run, or "
                 "any, which is faster and does not repeat its bits."),
      choice_key("kernels.matmul", kernels.matmul,
                 "The matrix products of the CPU: this project's, or OpenBLAS's, to compare with."),
      choice_key("kernels.cublaslt", kernels.cublaslt,
                 "The algorithms of a GPU's matrix products: the first that cuBLASLt suggests, or "
                 "the fastest of eight by measurement. Checkpoints keep the measured ones, so that "
                 "a run that continues has the same bits."),
      choice_key("kernels.swiglu", kernels.swiglu,
                 "A gated feed-forward layer on a GPU of architecture 9.0, in 16 bits. `epilogue`: "
                 "this project's product of gate and up applies SwiGLU before it stores. "
                 "`separate`: cuBLASLt's product, then a SwiGLU kernel. Experts always use "
                 "`epilogue`."),
  };
}

std::vector<Key> train_keys(TrainConfig& train) {
  return {
      whole_number_key("train.steps", train.steps, 1, kMostSteps, "Number of training steps."),
      whole_number_key(
          "train.epochs", train.epochs, 0, kMostSteps,
          "Passes over the training data, instead of `train.steps`; an epoch has every "
          "row once. 0 = `train.steps`."),
      path_key("train.dir", train.dir,
               "Run folder: resolved configuration, `metrics.jsonl` and the trained model."),
      whole_number_key("train.log_every", train.log_every, 0, kMostSteps,
                       "Print a log line every so many steps, and after the first and the last. "
                       "0 = only with a validation loss."),
      whole_number_key("train.eval_every", train.eval_every, 0, kMostSteps,
                       "Measure the validation loss every so many steps, and after the first and "
                       "the last. 0 = never."),
      whole_number_key("train.eval_batches", train.eval_batches, 0, kMostSteps,
                       "Batches per measurement; 0 = every sequence of the validation file once."),
      whole_number_key("train.sample_every", train.sample_every, 0, kMostSteps,
                       "Continue the texts of the section `sample` every so many steps, and after "
                       "the first and the last. This needs a tokenizer next to the data. 0 = "
                       "never."),
      whole_number_key("train.hellaswag_every", train.hellaswag_every, 0, kMostSteps,
                       "Answer the questions of `data.hellaswag` every so many steps, and after "
                       "the last. 0 = only after the last."),
      whole_number_key("train.seed", train.seed, 0, kMostSeed,
                       "Seed of initialization, shuffling and dropout; the same seed gives the "
                       "same run."),
      form_key("train.profile", train.profile, "steps such as 10-12, at most 100; or empty",
               parse_steps, steps_text,
               "Records time and memory of these steps in the folder `profile/` of the run: a "
               "Chrome trace (Perfetto), and memory for PyTorch's viewer. Empty = none."),
      choice_key("train.progress", train.progress,
                 "`auto` draws a progress bar on a terminal and prints lines otherwise, also under "
                 "mpirun."),
      flag_key("train.measure_matmul_rate", train.measure_matmul_rate,
               "Time plain matrix products of the model's shapes before the first step, for about "
               "a second, and report each step's share of that rate."),
      whole_number_key("train.checkpoint_every", train.checkpoint_every, 0, kMostSteps,
                       "Save a checkpoint every so many steps; a run of at least so many steps "
                       "also saves one after its last. 0 = only when a signal stops the run."),
      whole_number_key(
          "train.keep_last", train.keep_last, 1, kMostSteps,
          "Checkpoints to keep. The last one with a finite gradient norm is kept, too."),
      whole_number_key("train.keep_every", train.keep_every, 0, kMostSteps,
                       "Also keep the checkpoints of steps that are a multiple of this; 0 = none."),
      text_key("train.resume", train.resume,
               "`auto` continues from the newest checkpoint in `train.dir`, if there is one; "
               "`never` starts again; a path names a checkpoint, or a run folder, to start from."),
      choice_key("train.on_nonfinite", train.on_nonfinite,
                 "After a loss or gradient norm that is not finite: `stop` the run; `skip` the "
                 "step, at most 10 in a row; `rollback` to the newest checkpoint and go on with "
                 "the batches after this one, at most 3 times from one checkpoint. f16 first "
                 "lowers its loss scale."),
      whole_number_key("train.elastic", train.elastic, 0, 1 << 16,
                       "A power of two: the micro-batches of a step, of all ranks together. Their "
                       "number does not depend on the number of ranks, which divides it, and "
                       "neither do the bits of losses, norms and weights. 0 = off: each rank has "
                       "`data.accumulation_steps`."),
  };
}

std::vector<Key> sample_keys(SampleConfig& sample) {
  return {
      text_key("sample.prompt", sample.prompt,
               "The text to continue; empty = a line break, unless `sample.prompts` is set."),
      path_key("sample.prompts", sample.prompts,
               "A file of texts to continue: one per line, or a JSON list of texts or of lists of "
               "token ids. Empty = `sample.prompt`."),
      whole_number_key("sample.tokens", sample.tokens, 1, kMostTokens, "Tokens to add to each."),
      number_key("sample.temperature", sample.temperature, kFromZero,
                 "Divides the logits; 0 takes the likeliest token."),
      whole_number_key("sample.top_k", sample.top_k, 0, LargestSizes::vocab_size,
                       "Only the k likeliest tokens; 0 = all."),
      number_key("sample.top_p", sample.top_p, {.least = 0.0, .most = 1.0, .least_excluded = true},
                 "Only the likeliest tokens that hold this probability; 1 = all."),
      whole_number_key("sample.seed", sample.seed, 0, kMostSeed,
                       "The same seed chooses by the same random numbers each time."),
  };
}

}  // namespace

std::string_view Key::section() const {
  return std::string_view(name).substr(0, name.find('.'));
}

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"model", "The model."},
      {"moe", "The routers of a mixture of experts."},
      {"data", "The tokens it is trained on."},
      {"optimizer", "How weights follow gradients."},
      {"sharding", "What each rank keeps in memory."},
      {"runtime", "The device and the precision."},
      {"kernels", "The choice of kernels."},
      {"train", "The length of the run, and its output."},
      {"sample", "The texts that `train.sample_every` continues."},
  };
  return all;
}

std::vector<Key> keys_of(Config& config) {
  std::vector<Key> keys;
  for (const std::vector<Key>& group :
       {model_keys(config.model), moe_keys(config.moe), data_keys(config.data),
        optimizer_keys(config.optimizer), sharding_keys(config.sharding),
        runtime_keys(config.runtime), kernels_keys(config.kernels), train_keys(config.train),
        sample_keys(config.sample)}) {
    keys.insert(keys.end(), group.begin(), group.end());
  }
  return keys;
}

}  // namespace tessera
