#include "models/gpt2/model.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/operations.h"

namespace tessera {
namespace {

// Section 2.3 of the paper: N(0, 0.02), residual layers scaled by 1 / sqrt(number of them).
constexpr double kInitialDeviation = 0.02;

Linear conv1d(const std::string& name, std::int64_t inputs, std::int64_t outputs, double deviation,
              const LayerCut& cut) {
  return Linear(name, inputs, outputs, /*with_bias=*/true, WeightLayout::in_out,
                Initializer::normal(deviation), cut);
}

LayerNorm norm(const std::string& name, const Gpt2Config& config) {
  return LayerNorm(name, config.width, static_cast<float>(config.norm_epsilon));
}

/// The initial deviation of the layers that end a residual branch, two per block.
double residual_deviation(const Gpt2Config& config) {
  return kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

class Block final : public DecoderBlock {
 public:
  Block(const std::string& name, std::int64_t layer, const Gpt2Config& config)
      : layer_(layer),
        gelu_(config.gelu),
        ln_1_(norm(name + ".ln_1", config)),
        c_attn_(conv1d(name + ".attn.c_attn", config.width, 3 * config.width, kInitialDeviation,
                       by_outputs(config.heads, "head", /*groups=*/3))),
        attn_c_proj_(conv1d(name + ".attn.c_proj", config.width, config.width,
                            residual_deviation(config), by_inputs(config.heads, "head"))),
        ln_2_(norm(name + ".ln_2", config)),
        c_fc_(conv1d(name + ".mlp.c_fc", config.width, 4 * config.width, kInitialDeviation,
                     by_outputs(4 * config.width))),
        mlp_c_proj_(conv1d(name + ".mlp.c_proj", 4 * config.width, config.width,
                           residual_deviation(config), by_inputs(4 * config.width))),
        attn_dropout_{name + ".attn.dropout", static_cast<float>(config.dropout),
                      attn_c_proj_.weight},
        mlp_dropout_{name + ".mlp.dropout", static_cast<float>(config.dropout),
                     mlp_c_proj_.weight} {}

  Variable forward(const Variable& x, const Pass& pass) const override {
    const std::int64_t heads = own_heads(c_attn_.weight);
    const Variable attended = attend(c_attn_(ln_1_(x)), heads, heads, pass, layer_);
    if (attn_dropout_.acts(pass.training)) {
      const auto [middle, normed] = ln_2_(x, attn_dropout_(attn_c_proj_(attended), pass.training));
      return add(middle, mlp_dropout_(mlp(normed), pass.training));
    }
    // Without dropout the products that end the branches add them to the residual stream.
    const Variable middle = attn_c_proj_(attended, x);
    return mlp(ln_2_(middle), middle);
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    for (const Module* part : std::initializer_list<const Module*>{&ln_1_, &c_attn_, &attn_c_proj_,
                                                                   &ln_2_, &c_fc_, &mlp_c_proj_}) {
      part->visit_parameters(visit);
    }
  }

 private:
  /// c_proj(gelu(c_fc(x))), plus `residual` if it is defined.
  Variable mlp(const Variable& x, const Variable& residual = {}) const {
    return gelu_mlp(x, c_fc_.weight, c_fc_.bias, mlp_c_proj_.weight, mlp_c_proj_.bias,
                    WeightLayout::in_out, residual, gelu_);
  }

  std::int64_t layer_;
  GeluForm gelu_;
  LayerNorm ln_1_;
  Linear c_attn_;
  Linear attn_c_proj_;
  LayerNorm ln_2_;
  Linear c_fc_;
  Linear mlp_c_proj_;
  Dropout attn_dropout_;
  Dropout mlp_dropout_;
};

/// i32 [B, T]: the tokens' positions in their documents.
Tensor positions_of(const Tensor& ids, const Pass& pass) {
  if (pass.document_positions.defined()) return pass.document_positions;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(ids.numel()));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    positions[i] = static_cast<std::int32_t>(pass.first_position() + i % ids.size(1));
  }
  return Tensor::from(positions, ids.shape());
}

}  // namespace

Gpt2::Gpt2(const Gpt2Config& config)
    : Decoder(shape_of(checked(config))),
      config_(config),
      wte_("transformer.wte", config.vocab_size, config.width,
           Initializer::normal(kInitialDeviation), Divided::vocabulary),
      wpe_("transformer.wpe", config.context, config.width, Initializer::normal(kInitialDeviation)),
      ln_f_(norm("transformer.ln_f", config)) {
  add_tied_ends({&wte_, &wpe_, &ln_f_});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "h." + std::to_string(i);
    add_block(name, std::make_unique<Block>("transformer." + name, i, config));
  }
}

Variable Gpt2::embed(const Tensor& ids, const Pass& pass) const {
  const Variable x = add(wte_(ids), wpe_(positions_of(ids, pass)));
  const Dropout dropout{"transformer.dropout", static_cast<float>(config_.dropout), wte_.weight};
  return dropout(x, pass.training);
}

nlohmann::json Gpt2::config() const {
  return to_json(config_);
}

void Gpt2::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  wte_.visit_parameters(visit);
  wpe_.visit_parameters(visit);
  for (const auto& block : blocks()) block->visit_parameters(visit);
  ln_f_.visit_parameters(visit);
}

}  // namespace tessera
