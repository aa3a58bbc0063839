#include "tools/config/synonyms.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {

constexpr Synonym kKeys[] = {
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"num_attention_heads", "model.heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_kv_heads", "model.kv_heads"},
    {"head_dim", "model.head_size"},
    {"intermediate_size", "model.mlp_width"},
    {"ffn_dim", "model.mlp_width"},
    {"n_embd", "model.width"},
    {"dim", "model.width"},
    {"d_model", "model.width"},
    {"hidden_size", "model.width"},
    {"n_positions", "model.context"},
    {"n_ctx", "model.context"},
    {"max_position_embeddings", "model.context"},
    {"num_experts", "model.experts"},
    {"num_local_experts", "model.experts"},
    {"num_experts_per_tok", "model.experts_per_token"},
    {"model_name_or_path", "model.init_from"},
    {"r", "adapter.rank"},
    {"lora_r", "adapter.rank"},
    {"lora_rank", "adapter.rank"},
    {"lora_alpha", "adapter.alpha"},
    {"lora_dropout", "adapter.dropout"},
    {"use_rslora", "adapter.scaling"},
    {"target_modules", "adapter.targets"},
    {"lora_target_modules", "adapter.targets"},
    {"adapter_name_or_path", "adapter.path"},
    {"load_in_4bit", "adapter.base"},
    {"quant_type", "adapter.base"},
    {"bnb_4bit_quant_type", "adapter.base"},
    {"block_size", "data.sequence_length' and 'model.context"},
    {"seq_len", "data.sequence_length"},
    {"seq_length", "data.sequence_length"},
    {"max_seq_len", "data.sequence_length"},
    {"max_length", "data.sequence_length"},
    {"dataset", "data.train"},
    {"dataset_weights", "data.train"},
    {"probabilities", "data.train"},
    {"stopping_strategy", "data.mixture"},
    {"eval_dataset", "data.val"},
    {"eval_datasets", "data.validation"},
    {"rampup_batch_size", "train.batch_ramp"},
    {"train_batch_size", "data.batch_size"},
    {"global_batch_size", "data.batch_size"},
    {"per_device_train_batch_size", "data.rows_per_rank"},
    {"train_micro_batch_size_per_gpu", "data.rows_per_rank"},
    {"local_batch_size", "data.rows_per_rank"},
    {"gradient_accumulation_steps", "data.accumulation_steps"},
    {"accumulate_grad_batches", "data.accumulation_steps"},
    {"no_sync", "data.accumulation_steps"},
    {"lr", "optimizer.learning_rate"},
    {"min_lr", "optimizer.minimum_learning_rate_ratio"},
    {"min_lr_factor", "optimizer.minimum_learning_rate_ratio"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"decay_lr", "optimizer.schedule"},
    {"warmup_iters", "optimizer.warmup_steps"},
    {"wd", "optimizer.weight_decay"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"eps", "optimizer.epsilon"},
    {"adam_epsilon", "optimizer.epsilon"},
    {"param_groups", "optimizer.groups"},
    {"parameter_groups", "optimizer.groups"},
    {"optimizer_grouped_parameters", "optimizer.groups"},
    {"no_decay", "optimizer.groups"},
    {"layerwise_lr_decay", "optimizer.groups"},
    {"muon_beta", "optimizer.muon_momentum"},
    {"adjust_lr_fn", "optimizer.muon_scale"},
    {"ns_dtype", "optimizer.muon_ns_dtype"},
    {"grad_clip", "optimizer.clip_norm"},
    {"max_grad_norm", "optimizer.clip_norm"},
    {"max_norm", "optimizer.clip_norm"},
    {"gradient_clipping", "optimizer.clip_norm"},
    {"gradient_clip_val", "optimizer.clip_norm"},
    {"dtype", "runtime.compute_dtype"},
    {"torch_dtype", "runtime.compute_dtype"},
    {"param_dtype", "runtime.compute_dtype"},
    {"mixed_precision", "runtime.compute_dtype"},
    {"mixed_precision_param", "runtime.compute_dtype"},
    {"precision", "runtime.compute_dtype"},
    {"bf16", "runtime.compute_dtype"},
    {"fp16", "runtime.compute_dtype"},
    {"fp8", "runtime.compute_dtype"},
    {"world_size", "runtime.ranks"},
    {"nproc_per_node", "runtime.ranks"},
    {"devices", "runtime.ranks"},
    {"bind_cores_to_rank", "runtime.pin"},
    {"sharding_strategy", "sharding.strategy"},
    {"fsdp", "sharding.strategy"},
    {"ddp", "sharding.strategy"},
    {"zero_stage", "sharding.strategy"},
    {"zero_optimization", "sharding.strategy"},
    {"stage", "sharding.strategy"},
    {"distributed_type", "sharding.strategy"},
    {"use_orig_params", "sharding.flatten_parameters"},
    {"device_mesh", "sharding.shard_size"},
    {"data_parallel_shard_degree", "sharding.shard_size"},
    {"data_parallel_replicate_degree", "sharding.shard_size"},
    {"expert_parallel_degree", "sharding.expert_parallel"},
    {"expert_model_parallel_size", "sharding.expert_parallel"},
    {"overlap_moe_expert_parallel_comm", "sharding.expert_pieces"},
    {"tensor_parallel_degree", "sharding.tensor_parallel"},
    {"tensor_model_parallel_size", "sharding.tensor_parallel"},
    {"autotp_size", "sharding.tensor_parallel"},
    {"expert_tensor_parallel_size", "sharding.tensor_parallel"},
    {"expert_tensor_parallel_degree", "sharding.tensor_parallel"},
    {"enable_async_tensor_parallel", "sharding.tensor_exchange"},
    {"tp_comm_overlap", "sharding.tensor_exchange"},
    {"context_parallel_degree", "sharding.context_parallel"},
    {"context_parallel_size", "sharding.context_parallel"},
    {"sequence_parallel_size", "sharding.context_parallel"},
    {"ulysses_sequence_parallel_size", "sharding.context_parallel"},
    {"context_parallel_rotate_method", "sharding.context_exchange"},
    {"cp_comm_type", "sharding.context_exchange"},
    {"pipeline_parallel_degree", "sharding.pipeline_parallel"},
    {"pipeline_model_parallel_size", "sharding.pipeline_parallel"},
    {"pipeline_parallel_schedule", "sharding.pipeline_schedule"},
    {"pipeline_parallel_split_points", "sharding.pipeline_stages"},
    {"pipeline_model_parallel_layout", "sharding.pipeline_stages"},
    {"module_fqns_per_model_part", "sharding.pipeline_stages"},
    {"virtual_pipeline_model_parallel_size", "sharding.pipeline_chunks"},
    {"num_virtual_stages_per_pipeline_rank", "sharding.pipeline_chunks"},
    {"num_layers_per_virtual_pipeline_stage", "sharding.pipeline_chunks"},
    {"pipeline_parallel_layers_per_stage", "sharding.pipeline_chunks"},
    {"ignored_modules", "sharding.rules"},
    {"ignored_states", "sharding.rules"},
    {"ignored_params", "sharding.rules"},
    {"auto_wrap_policy", "sharding.buckets"},
    {"transformer_layer_cls_to_wrap", "sharding.buckets"},
    {"bucket_cap_mb", "sharding.buckets"},
    {"reduce_bucket_size", "sharding.buckets"},
    {"allgather_bucket_size", "sharding.buckets"},
    {"fsdp_reshard_after_forward", "sharding.reshard_after_forward"},
    {"zero_hpz_partition_size", "sharding.reshard_after_forward"},
    {"limit_all_gathers", "sharding.live_gathers"},
    {"stage3_max_live_parameters", "sharding.live_gathers"},
    {"backward_prefetch", "sharding.prefetch"},
    {"forward_prefetch", "sharding.prefetch"},
    {"stage3_prefetch_bucket_size", "sharding.prefetch"},
    {"overlap_comm", "sharding.prefetch"},
    {"mixed_precision_reduce", "sharding.reduce_dtype"},
    {"communication_data_type", "sharding.reduce_dtype"},
    {"grad_accum_dtype", "optimizer.gradient_dtype"},
    {"main_grads_dtype", "optimizer.gradient_dtype"},
    {"backend", "sharding.communicator"},
    {"init_timeout_seconds", "sharding.timeout"},
    {"ddp_timeout", "sharding.timeout"},
    {"cpu_offload", "sharding.offload"},
    {"enable_cpu_offload", "sharding.offload"},
    {"offload_policy", "sharding.offload"},
    {"offload_optimizer", "sharding.offload"},
    {"offload_param", "sharding.offload"},
    {"gradient_checkpointing", "sharding.activation_checkpointing"},
    {"activation_checkpoint", "sharding.activation_checkpointing"},
    {"recompute_granularity", "sharding.activation_checkpointing"},
    {"ema_decay", "train.ema"},
    {"use_ema", "train.ema"},
    {"max_iters", "train.steps"},
    {"max_steps", "train.steps"},
    {"num_train_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"eval_iters", "train.eval_batches"},
    {"logging_steps", "train.log_every"},
    {"steps_per_print", "train.log_every"},
    {"log_every_n_steps", "train.log_every"},
    {"out_dir", "train.dir"},
    {"output_dir", "train.dir"},
    {"dump_folder", "train.dir"},
    {"save_steps", "train.checkpoint_every"},
    {"save_interval", "train.checkpoint_every"},
    {"save_every", "train.checkpoint_every"},
    {"always_save_checkpoint", "train.checkpoint_every"},
    {"save_total_limit", "train.keep_last"},
    {"keep_latest_k", "train.keep_last"},
    {"resume_from_checkpoint", "train.resume"},
    {"trace", "train.profile"},
    {"profile_freq", "train.profile"},
    {"wall_clock_breakdown", "train.profile"},
    {"generate_every", "train.sample_every"},
    {"detect_anomaly", "train.on_nonfinite"},
    {"check_for_nan_in_loss_and_grad", "train.on_nonfinite"},
    {"check_for_spiky_loss", "train.keep_spikes"},
};

constexpr Synonym kValues[] = {
    {"bfloat16", "bf16"},
    {"torch.bfloat16", "bf16"},
    {"float16", "f16"},
    {"fp16", "f16"},
    {"half", "f16"},
    {"torch.float16", "f16"},
    {"float32", "f32"},
    {"fp32", "f32"},
    {"float", "f32"},
    {"torch.float32", "f32"},
    {"gpu", "cuda"},
    {"adam", "adamw"},
    {"yes", "true"},
    {"on", "true"},
    {"no", "false"},
    {"off", "false"},
    {"wsd", "warmup_stable_decay"},
    {"full_shard", "fsdp"},
    {"shard_grad_op", "fsdp with sharding.reshard_after_forward=false"},
    {"hybrid_shard", "hsdp"},
    {"_hybrid_shard_zero2", "hsdp with sharding.reshard_after_forward=false"},
    {"no_shard", "ddp"},
    {"0", "ddp"},
    {"1", "zero1"},
    {"2", "zero2"},
    {"3", "fsdp with sharding.flatten_parameters=true"},
    {"backward_pre", "backward"},
    {"interleaved1f1b", "interleaved"},
    {"cpu", "optimizer"},
};

std::optional<std::string> look_up(std::span<const Synonym> synonyms, std::string_view name) {
  for (const Synonym& synonym : synonyms) {
    if (synonym.name == name) return std::string(synonym.here);
  }
  return std::nullopt;
}

/// "train.sample_every" for "sample_interval", if there is such a key.
std::optional<std::string> interval_key(std::string_view leaf, std::span<const std::string> keys) {
  for (const std::string_view ending : {"_interval", "_steps", "_iters", "_freq"}) {
    if (!leaf.ends_with(ending)) continue;
    leaf.remove_suffix(ending.size());
    const std::string key = fmt::format("train.{}_every", leaf);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) return key;
  }
  return std::nullopt;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// "1000" for "1e3" and "1_000": the digits of a whole number in scientific notation, or with the
/// underscores that Python and YAML 1.1 permit between digits.
std::optional<std::string> digits_of(std::string text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '_' && is_digit(text[i - 1]) && is_digit(text[i + 1])) text.erase(i, 1);
  }
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size() &&
                     number == std::floor(number) && std::abs(number) < 0x1p53;
  if (!whole) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(number));
}

}  // namespace

std::span<const Synonym> key_synonyms() {
  return kKeys;
}

std::span<const Synonym> value_synonyms() {
  return kValues;
}

std::optional<std::string> key_synonym(std::string_view name, std::span<const std::string> keys) {
  const std::string_view leaf = name.substr(name.rfind('.') + 1);  // npos + 1 == 0
  std::optional<std::string> key = look_up(kKeys, leaf);
  if (!key) key = interval_key(leaf, keys);
  if (!key) return std::nullopt;
  return "it is called '" + *key + "' here";
}

std::optional<std::string> value_synonym(std::string_view value) {
  const std::string small = lower(value);
  if (const auto found = look_up(kValues, small)) return found;
  if (const auto digits = digits_of(small)) return digits;
  return small != value ? std::optional(small) : std::nullopt;
}

}  // namespace tessera
