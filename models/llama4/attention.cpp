#include "models/llama4/attention.h"

#include <utility>
#include <vector>

#include "models/rms_decoder.h"

namespace tessera {
namespace {

/// A table of the temperatures of positions 0, 1, ...
RopeTable temperatures(const Llama4Config& config, std::int64_t positions, DType dtype) {
  const std::int64_t pairs = shape_of(config).head_size / 2;
  RopeTable table{.pairs = RopePairs::interleaved};
  visit_floating(dtype, [&](auto type) {
    std::vector<decltype(type)> cosine;
    for (std::int64_t position = 0; position < positions; ++position) {
      const auto factor = static_cast<decltype(type)>(temperature_of(config, position));
      cosine.insert(cosine.end(), static_cast<std::size_t>(pairs), factor);
    }
    table.cosine = Tensor::from(cosine, {positions, pairs});
    table.sine = Tensor::zeros({positions, pairs}, dtype);
  });
  return table;
}

Linear projection(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                  const Llama4Config& config, const LayerCut& cut) {
  return Linear(name, inputs, outputs, config.attention_bias, WeightLayout::out_in, kUsualInitial,
                cut);
}

/// Heads of queries share those of keys and values.
LayerCut heads_of_keys(const Llama4Config& config) {
  return by_shared_outputs(config.kv_heads, config.heads / config.kv_heads, "head");
}

}  // namespace

Llama4Positions::Llama4Positions(const Llama4Config& config)
    : rotary(config.rope, shape_of(config), RopePairs::interleaved),
      temperature([config](std::int64_t positions, DType dtype,
                           std::int64_t) { return temperatures(config, positions, dtype); },
                  shape_of(config)) {}

Llama4Attention::Llama4Attention(const std::string& name, std::int64_t layer,
                                 const Llama4Config& config,
                                 std::shared_ptr<const Llama4Positions> positions)
    : layer_(layer),
      head_size_(shape_of(config).head_size),
      rope_(config.has_rope(layer)),
      qk_norm_(config.qk_norm),
      temperature_tuning_(config.temperature_tuning),
      norm_epsilon_(static_cast<float>(config.norm_epsilon)),
      q_proj_(projection(name + ".q_proj", config.width, config.heads * head_size_, config,
                         by_outputs(config.heads, "head"))),
      k_proj_(projection(name + ".k_proj", config.width, config.kv_heads * head_size_, config,
                         heads_of_keys(config))),
      v_proj_(projection(name + ".v_proj", config.width, config.kv_heads * head_size_, config,
                         heads_of_keys(config))),
      o_proj_(projection(name + ".o_proj", config.heads * head_size_, config.width, config,
                         by_inputs(config.heads, "head"))),
      positions_(std::move(positions)) {}

Variable Llama4Attention::operator()(const Variable& x, const Pass& pass,
                                     const Variable& residual) const {
  const std::int64_t heads = own_heads(q_proj_.weight), kv_heads = own_heads(k_proj_.weight);
  Variable q = q_proj_(x), k = k_proj_(x);
  if (rope_) {
    q = rotated(std::move(q), heads, pass);
    k = rotated(std::move(k), kv_heads, pass);
  } else if (temperature_tuning_) {
    q = positions_->temperature(std::move(q), heads, pass.positions());
  }
  const AttentionSpan span = rope_ ? AttentionSpan::near : AttentionSpan::document;
  return o_proj_(attend(q, k, v_proj_(x), heads, kv_heads, pass, layer_, span), residual);
}

Variable Llama4Attention::rotated(Variable x, std::int64_t heads, const Pass& pass) const {
  x = positions_->rotary(std::move(x), heads, pass.positions());
  if (!qk_norm_) return x;
  const Shape packed = x.shape();
  const Variable per_head = reshape(x, {packed[0], packed[1], heads, head_size_});
  return reshape(rms_norm(per_head, norm_epsilon_), packed);
}

void Llama4Attention::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  for (const Linear* linear : {&q_proj_, &k_proj_, &v_proj_, &o_proj_}) {
    linear->visit_parameters(visit);
  }
}

}  // namespace tessera
