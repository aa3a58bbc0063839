#include "tools/config/section_keys.h"

#include "tools/config/sharding_options.h"

namespace tessera {

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
          "How ranks exchange tensors. `auto` takes NCCL for processes on GPUs, where the build "
          "has it. Otherwise threads of one process read each other's memory, and processes use "
          "MPI."),
      flag_key("sharding.deterministic", sharding.deterministic,
               "nccl: form sums over ranks in the order of the other communicators, not in NCCL's "
               "own: the same bits on any machine, for more messages."),
      whole_number_key(
          "sharding.nccl_ctas", sharding.nccl_ctas, 1, 64,
          "nccl: thread blocks of a collective at most. Each holds a multiprocessor of "
          "the GPU and has buffers in its memory; products get the other "
          "multiprocessors."),
      flag_key("sharding.nccl_windows", sharding.nccl_windows,
               "nccl, from version 2.28: the buffers of gathers and reductions are memory that all "
               "ranks of a machine reach. Gathers hold no multiprocessor, and with `deterministic` "
               "a sum is read from the ranks' memory, without messages and with the same bits. "
               "NCCL's own sums may have another order."),
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

}  // namespace tessera
