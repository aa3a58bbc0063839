#include "tools/checkpoint/dcp_names.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/check.h"

namespace tessera {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

/// Transformers' names and torchtitan's: of tensors at the model's ends, and of a block's.
constexpr std::array<Pair, 3> kOfEnds = {{{"model.embed_tokens.weight", "tok_embeddings.weight"},
                                          {"model.norm.weight", "norm.weight"},
                                          {"lm_head.weight", "output.weight"}}};
constexpr std::array<Pair, 9> kOfBlocks = {
    {{"self_attn.q_proj.weight", "attention.wq.weight"},
     {"self_attn.k_proj.weight", "attention.wk.weight"},
     {"self_attn.v_proj.weight", "attention.wv.weight"},
     {"self_attn.o_proj.weight", "attention.wo.weight"},
     {"mlp.gate_proj.weight", "feed_forward.w1.weight"},
     {"mlp.down_proj.weight", "feed_forward.w2.weight"},
     {"mlp.up_proj.weight", "feed_forward.w3.weight"},
     {"input_layernorm.weight", "attention_norm.weight"},
     {"post_attention_layernorm.weight", "ffn_norm.weight"}}};

std::string torchtitan_name(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  for (const auto& [hf, torchtitan] : kOfEnds) {
    if (name == hf) return std::string(torchtitan);
  }
  const std::size_t point = name.find('.', kLayers.size());
  if (name.starts_with(kLayers) && point != std::string::npos) {
    for (const auto& [hf, torchtitan] : kOfBlocks) {
      if (std::string_view(name).substr(point + 1) != hf) continue;
      const std::size_t number = kLayers.find("layers.");
      return name.substr(number, point + 1 - number) + std::string(torchtitan);
    }
  }
  fail("torchtitan's Llama has no parameter {}; give --names hf", name);
}

}  // namespace

std::vector<DcpPart> dcp_parts(const std::string& parameter, const Shape& shape,
                               const TensorNames& hf, DcpNames names) {
  if (names == DcpNames::torchtitan) {
    const std::string name = torchtitan_name(parameter);
    return {{name, shape, name.ends_with(".wq.weight") || name.ends_with(".wk.weight")}};
  }
  std::vector<DcpPart> parts;
  for (const StoredTensor& tensor : usual_tensors(parameter, shape, hf)) {
    parts.push_back({tensor.name, tensor.shape});
  }
  return parts;
}

std::vector<std::byte> reordered(std::span<const std::byte> rows, std::int64_t count,
                                 std::int64_t head_size, HeadOrder to) {
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(count);
  std::vector<std::byte> result(rows.size());
  for (std::int64_t metas = 0; metas < count; ++metas) {
    const std::int64_t head = metas / head_size, channel = metas % head_size;
    const std::int64_t ours = head * head_size + channel % 2 * (head_size / 2) + channel / 2;
    const auto [from, into] =
        to == HeadOrder::ours ? std::pair(metas, ours) : std::pair(ours, metas);
    std::memcpy(result.data() + static_cast<std::size_t>(into) * row_bytes,
                rows.data() + static_cast<std::size_t>(from) * row_bytes, row_bytes);
  }
  return result;
}

}  // namespace tessera
