"""Transformers' models with the sizes that bench_step prints, for torch_step.py --hf."""

import sys

try:
    import transformers
except ModuleNotFoundError:
    sys.exit("torch_step.py: --hf needs Transformers: pip install transformers")
from torch import nn
from torch.nn import functional as F


def config_of(sizes, tied):
    """A GPT-2, a Llama or, with experts, a Qwen3-MoE."""
    common = {"vocab_size": sizes.vocab, "tie_word_embeddings": tied, "use_cache": False}
    if not sizes.gated_mlp:
        return transformers.GPT2Config(
            n_layer=sizes.layers, n_head=sizes.heads, n_embd=sizes.width, n_inner=sizes.mlp_width,
            n_positions=sizes.context, activation_function="gelu_pytorch_tanh", resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, **common)
    common |= {"hidden_size": sizes.width, "num_hidden_layers": sizes.layers,
               "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads,
               "head_dim": sizes.head_size, "intermediate_size": sizes.mlp_width,
               "max_position_embeddings": sizes.context}
    if sizes.experts == 0:
        return transformers.LlamaConfig(**common)
    if sizes.shared_expert_width > 0 or sizes.layers_with_experts < sizes.layers:
        sys.exit("torch_step.py: --hf knows experts in every layer only, and no shared ones")
    return transformers.Qwen3MoeConfig(
        num_experts=sizes.experts, num_experts_per_tok=sizes.experts_per_token,
        moe_intermediate_size=sizes.expert_width, norm_topk_prob=True, **common)


class HfModel(nn.Module):
    """The loss of Transformers' model. `experts` names its implementation of experts, or is ''."""

    def __init__(self, sizes, tied, experts):
        super().__init__()
        options = {"experts_implementation": experts} if experts else {}
        self.model = transformers.AutoModelForCausalLM.from_config(
            config_of(sizes, tied), attn_implementation="sdpa", **options)

    def forward(self, ids, targets):
        logits = self.model(input_ids=ids).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
