#include "tools/config/keys.h"

#include "autograd/checkpointing.h"
#include "runtime/device.h"
#include "tools/config/sharding_options.h"

namespace tessera {
namespace {

Allowed anything() {
  return {};
}

Allowed at_least(double least) {
  return {.least = least};
}

Allowed above(double least) {
  return {.least = least, .least_excluded = true};
}

/// least <= value <= most.
Allowed between(double least, double most) {
  return {.least = least, .most = most};
}

/// least <= value < most.
Allowed from_below(double least, double most) {
  return {.least = least, .most = most, .most_excluded = true};
}

Allowed one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}

Allowed compute_dtypes() {
  return one_of({"f32", "bf16", "f16"});
}

Allowed device_names() {
  return {.is_form = [](std::string_view text) { return parse_device(text).has_value(); },
          .forms = "auto, cpu, cuda or a GPU by number such as cuda:1"};
}

Allowed reshard_forms() {
  return {.is_form = [](std::string_view text) { return parse_reshard(text).has_value(); },
          .forms = "true, false or a number of ranks >= 2"};
}

Allowed checkpointing_policy() {
  return {.is_form = [](std::string_view text) { return parse_checkpointing(text).has_value(); },
          .forms = std::string(CheckpointingPolicy::kForms)};
}

std::vector<Key> model_keys(ModelConfig& model) {
  return {
      {"model.preset", &model.preset,
       one_of({"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt2-mini"}),
       "Sizes to start from: the published ones, or `gpt2-mini` for a laptop. The keys below "
       "override them one by one."},
      {"model.layers", &model.layers, at_least(0), "Number of blocks; 0 = as the preset says."},
      {"model.heads", &model.heads, at_least(0),
       "Attention heads per block, a divisor of the width; 0 = as the preset says."},
      {"model.width", &model.width, at_least(0), "Size of an embedding; 0 = as the preset says."},
      {"model.context", &model.context, at_least(0),
       "Longest sequence that the model can read; 0 = as the preset says."},
      {"model.vocab_size", &model.vocab_size, at_least(0),
       "Number of different tokens; 0 = from the manifest beside `data.train`, without one as the "
       "preset says."},
      {"model.dropout", &model.dropout, from_below(0, 1),
       "Probability of dropping an activation in training."},
      {"model.init_from", &model.init_from, anything(),
       "Folder with a Hugging Face model (`model.safetensors`, `config.json`) to start from, whose "
       "sizes then count instead of the preset's; empty = random initialization."},
      {"model.frozen", &model.frozen, anything(),
       "Parameters that stay as they are: beginnings of their names, separated by commas, such as "
       "`transformer.wte,transformer.h.0.`; empty = all are trained."},
  };
}

std::vector<Key> data_keys(DataConfig& data) {
  return {
      {"data.train", &data.train, anything(),
       "Token file to train on, as `tessera prepare` writes it; training needs one."},
      {"data.val", &data.val, anything(),
       "Token file to measure the validation loss on; empty = no validation."},
      {"data.batch_size", &data.batch_size, at_least(1),
       "Sequences per training step, over all ranks and micro-batches."},
      {"data.sequence_length", &data.sequence_length, at_least(1),
       "Tokens per sequence; at most the model's context."},
      {"data.accumulation_steps", &data.accumulation_steps, at_least(1),
       "Micro-batches that each rank's part of a step is cut into, to need less memory. The batch "
       "size "
       "is a multiple of this times the number of ranks."},
  };
}

std::vector<Key> optimizer_keys(OptimizerConfig& optimizer) {
  return {
      {"optimizer.name", &optimizer.name, one_of({"adamw", "sgd"}), "The update rule."},
      {"optimizer.learning_rate", &optimizer.learning_rate, at_least(0),
       "Learning rate after the warm-up."},
      {"optimizer.schedule", &optimizer.schedule,
       one_of({"constant", "linear", "cosine", "warmup_stable_decay"}),
       "How the learning rate falls after the warm-up."},
      {"optimizer.warmup_steps", &optimizer.warmup_steps, at_least(0),
       "Steps over which the learning rate rises linearly from zero."},
      {"optimizer.decay_steps", &optimizer.decay_steps, at_least(0),
       "warmup_stable_decay: how many of the last steps decay. (linear and cosine decay from the "
       "warm-up to the last step.)"},
      {"optimizer.minimum_learning_rate_ratio", &optimizer.minimum_learning_rate_ratio,
       between(0, 1), "Where the decay ends, as a fraction of `optimizer.learning_rate`."},
      {"optimizer.beta1", &optimizer.beta1, from_below(0, 1),
       "adamw: decay of the average of gradients."},
      {"optimizer.beta2", &optimizer.beta2, from_below(0, 1),
       "adamw: decay of the average of squared gradients."},
      {"optimizer.epsilon", &optimizer.epsilon, above(0),
       "adamw: added to the root of the average of squared gradients."},
      {"optimizer.weight_decay", &optimizer.weight_decay, at_least(0),
       "Weight decay (decoupled for adamw); never applied to norms and biases."},
      {"optimizer.momentum", &optimizer.momentum, from_below(0, 1), "sgd: momentum."},
      {"optimizer.nesterov", &optimizer.nesterov, anything(),
       "sgd: Nesterov's form of the momentum."},
      {"optimizer.clip_norm", &optimizer.clip_norm, at_least(0),
       "Largest global norm of the gradient, which is scaled down to it; 0 = no clipping."},
  };
}

std::vector<Key> sharding_keys(ShardingConfig& sharding) {
  return {
      {"sharding.strategy", &sharding.strategy,
       one_of({"single", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"}),
       "How parameters, gradients and optimizer state are spread over ranks; `single`: one rank "
       "holds everything."},
      {"sharding.flatten_parameters", &sharding.flatten_parameters, anything(),
       "fsdp, hsdp: cut a bucket as one vector (FSDP1) instead of every parameter by rows "
       "(FSDP2)."},
      {"sharding.shard_size", &sharding.shard_size, between(0, 1 << 20),
       "hsdp: ranks that share one replica, neighbours; 0 = half of all ranks, or the next smaller "
       "power of two that divides them."},
      {"sharding.buckets", &sharding.buckets, anything(),
       "What travels together: `unit` = each unit of the model by itself (the embedding, every "
       "block); a number = neighbouring units, until they have so many parameters; names of units "
       "such as `h.0,h.4` = a bucket begins at each."},
      {"sharding.reshard_after_forward", &sharding.reshard_after_forward, reshard_forms(),
       "zero3, fsdp, hsdp: let go of parameters between forward and backward. `false` keeps them "
       "whole; a number (fsdp, hsdp) keeps them spread over groups of so many ranks only."},
      {"sharding.live_gathers", &sharding.live_gathers, between(1, 1024),
       "zero3, fsdp, hsdp: how many buckets may be whole at a time, besides the embedding; 1 = no "
       "prefetching."},
      {"sharding.prefetch", &sharding.prefetch, one_of({"both", "forward", "backward", "none"}),
       "zero3, fsdp, hsdp: in which pass the next bucket is gathered while this one computes."},
      {"sharding.reduce", &sharding.reduce, one_of({"every_micro_batch", "last_micro_batch"}),
       "With several micro-batches: reduce the gradients of each, or keep whole gradients on every "
       "rank and reduce their sum: less traffic, more memory, other rounding."},
      {"sharding.reduce_dtype", &sharding.reduce_dtype, compute_dtypes(),
       "What gradients are sent in; sums over ranks are formed in f32 in any case."},
      {"sharding.communicator", &sharding.communicator, one_of({"auto", "threads", "mpi", "nccl"}),
       "By what ranks exchange tensors. `auto`: threads of one process read each other's memory; "
       "under mpirun NCCL where ranks are on GPUs and the build has it, MPI otherwise."},
      {"sharding.deterministic", &sharding.deterministic, anything(),
       "nccl: form sums over ranks in the order in which the other communicators always form them, "
       "instead of NCCL's own: the same bits on any machine, for more messages."},
      {"sharding.offload", &sharding.offload, one_of({"none", "optimizer", "all"}),
       "What lies in host memory beside a GPU: `optimizer` = f32 masters and optimizer state, "
       "which the CPU then updates; `all` (zero3, fsdp, hsdp) = the rank's parts of parameters "
       "and gradients too. On the CPU it changes nothing. Results do not depend on it."},
      {"sharding.activation_checkpointing", &sharding.activation_checkpointing,
       checkpointing_policy(),
       "Blocks of which only the input is kept: the rest is computed again in the backward pass."},
  };
}

std::vector<Key> runtime_keys(RuntimeConfig& runtime) {
  return {
      {"runtime.device", &runtime.device, device_names(),
       "Where the model runs. `auto`: on the first GPU, if this build has the CUDA backend and the "
       "machine a GPU, otherwise on the CPU. With several ranks a GPU is the first rank's; the "
       "next "
       "ranks have the next GPUs, and then the first ones again."},
      {"runtime.ranks", &runtime.ranks, between(0, 1024),
       "Ranks, as threads of one process; `tessera train --ranks N` sets it. 0 = one, or under "
       "`mpirun -np N tessera train` as many processes as it starts."},
      {"runtime.threads", &runtime.threads, between(0, 4096),
       "Threads per rank; 0 = a machine's cores shared among its ranks. Results do not depend on "
       "it."},
      {"runtime.compute_dtype", &runtime.compute_dtype, compute_dtypes(),
       "What parameters are gathered and computed with. The optimizer's masters are f32; f16 comes "
       "with dynamic loss scaling."},
  };
}

std::vector<Key> kernels_keys(KernelsConfig& kernels) {
  return {
      {"kernels.attention", &kernels.attention, one_of({"tessera", "cudnn"}),
       "Whose attention runs on a GPU: this project's, or cuDNN's, in builds that have it, for "
       "bf16 "
       "and f16 and heads of a multiple of 8 up to 128."},
  };
}

std::vector<Key> train_keys(TrainConfig& train) {
  return {
      {"train.steps", &train.steps, at_least(1), "Number of training steps."},
      {"train.dir", &train.dir, anything(),
       "Run folder: resolved configuration, `metrics.jsonl` and the trained model."},
      {"train.log_every", &train.log_every, at_least(0),
       "Steps from one log line to the next; the first and last step always have one. 0 = only "
       "with a validation loss."},
      {"train.eval_every", &train.eval_every, at_least(0),
       "Steps from one measurement of the validation loss to the next; the first and last step "
       "always have one. 0 = never."},
      {"train.eval_batches", &train.eval_batches, at_least(0),
       "Batches per measurement; 0 = the whole validation file."},
      {"train.seed", &train.seed, at_least(0),
       "Seed of initialization, shuffling and dropout; the same seed gives the same run."},
      {"train.trace", &train.trace, anything(),
       "File for a Chrome trace (Perfetto) of the last steps; empty = no trace."},
      {"train.progress", &train.progress, one_of({"auto", "bar", "lines"}),
       "`auto` draws a progress bar on a terminal and prints lines otherwise."},
  };
}

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"model", "What is trained."},
      {"data", "What it is trained on."},
      {"optimizer", "How weights follow gradients."},
      {"sharding", "What each rank keeps in memory."},
      {"runtime", "Where and in which precision it runs."},
      {"kernels", "Whose kernels compute."},
      {"train", "How long, and what is written down."},
  };
  return all;
}

std::vector<Key> keys_of(Config& config) {
  std::vector<Key> keys;
  for (const std::vector<Key>& group :
       {model_keys(config.model), data_keys(config.data), optimizer_keys(config.optimizer),
        sharding_keys(config.sharding), runtime_keys(config.runtime), kernels_keys(config.kernels),
        train_keys(config.train)}) {
    keys.insert(keys.end(), group.begin(), group.end());
  }
  return keys;
}

}  // namespace tessera
