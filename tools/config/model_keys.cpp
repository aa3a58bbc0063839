#include "tools/config/section_keys.h"

#include "kernels/router/op.h"
#include "models/registry.h"
#include "tools/config/data_sources.h"

namespace tessera {
namespace {

Key preset_key(std::string name, std::string& field, std::string documentation) {
  static const std::vector<std::string_view> presets = model_presets();
  const auto copy = [](std::string_view text) { return std::string(text); };
  return name_key(std::move(name), field, presets, copy, copy, std::move(documentation));
}

}  // namespace

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

std::vector<Key> adapter_keys(AdapterConfig& adapter) {
  return {
      whole_number_key(
          "adapter.rank", adapter.rank, 0, LargestSizes::width,
          "Rank of the low-rank additions (LoRA) that are trained in place of the model, which is "
          "frozen in `runtime.compute_dtype`; 0 = none. Training needs `model.init_from`."),
      number_key("adapter.alpha", adapter.alpha, kAboveZero,
                 "The additions are multiplied by alpha / rank."),
      number_key("adapter.dropout", adapter.dropout, kBelowOne,
                 "Probability of dropping an element of an addition's input in training. Experts "
                 "have no dropout."),
      choice_key("adapter.scaling", adapter.scaling,
                 "`rank_stabilized`: the factor is alpha / sqrt(rank), so that a large rank learns "
                 "as fast (rsLoRA)."),
      text_key("adapter.targets", adapter.targets,
               "Layers that get an addition: patterns of their names, or of ends of these behind a "
               "dot, separated by commas, such as `q_proj,v_proj` or `*.h.0.*`; empty = all linear "
               "layers of attention and of feed-forward networks."),
      choice_or_auto_key(
          "adapter.base", adapter.base,
          "How the frozen weights of linear layers are held and gathered. `nf4`: in 4 bits with "
          "scales of blocks (QLoRA), unpacked for each product. `bf16`: in bf16, which "
          "`runtime.compute_dtype` must be. `auto` = in `runtime.compute_dtype`."),
      path_key("adapter.path", adapter.path,
               "Folder of PEFT with an adapter to start from, or a run that has trained one. Its "
               "rank, alpha, scaling and layers are taken, and `nf4` unless `adapter.base` is set. "
               "Empty = "
               "a new adapter."),
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
      training_data_key(data.train),
      choice_key(
          "data.mixture", data.mixture,
          "The meaning of the weights in `data.train`. `by_tokens`: shares of the tokens; a "
          "source that has ended begins again. `by_epochs`: how often the run passes over each "
          "source while it passes over the others as often as their weights say."),
      path_key("data.val", data.val,
               "Token files to measure the validation loss on; empty = no validation."),
      validation_key(data.validation),
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

}  // namespace tessera
