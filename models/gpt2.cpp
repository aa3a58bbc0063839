#include "models/gpt2.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "autograd/operations.h"
#include "kernels/attention/op.h"
#include "kernels/matmul/op.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

// Section 2.3 of the paper: N(0, 0.02), residual layers scaled by 1 / sqrt(number of them).
constexpr double kInitialDeviation = 0.02;

/// Attention of the newest rows over all that a layer's cache holds, after adding them to it.
Tensor cached_attention(const Tensor& qkv, Tensor& cache, std::int64_t cached,
                        std::int64_t capacity, std::int64_t heads) {
  if (!cache.defined()) cache = Tensor::empty({1, capacity, qkv.size(2)}, qkv.dtype());
  const std::int64_t fresh = qkv.size(1);
  const std::int64_t width = qkv.size(2) / 3;
  const std::int64_t head_size = width / heads;
  const std::int64_t tokens = cached + fresh;
  const Tensor rows = cache.reshape({cache.size(1), cache.size(2)});
  rows.slice(cached, tokens).copy_from(qkv);

  const Tensor y = Tensor::empty({1, fresh, width}, qkv.dtype());
  const Tensor logsumexp = Tensor::empty({1, heads, fresh}, statistics_dtype(qkv.dtype()));
  attention_forward(heads_of(y, 0, heads, head_size), logsumexp, heads_of(qkv, 0, heads, head_size),
                    heads_of(cache, width, heads, head_size, tokens),
                    heads_of(cache, 2 * width, heads, head_size, tokens),
                    static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size))));
  return y;
}

std::vector<Parameter> concatenated(std::initializer_list<const Module*> modules) {
  std::vector<Parameter> all;
  for (const Module* module : modules) {
    for (const Parameter& parameter : parameters_of(*module)) all.push_back(parameter);
  }
  return all;
}

}  // namespace

class Gpt2::Block final : public Module {
 public:
  Block(const std::string& name, const Gpt2Config& config)
      : heads_(config.heads),
        ln_1_(name + ".ln_1", config.width, static_cast<float>(config.norm_epsilon)),
        c_attn_(conv1d(name + ".attn.c_attn", config.width, 3 * config.width, kInitialDeviation)),
        attn_c_proj_(conv1d(name + ".attn.c_proj", config.width, config.width, residual(config))),
        ln_2_(name + ".ln_2", config.width, static_cast<float>(config.norm_epsilon)),
        c_fc_(conv1d(name + ".mlp.c_fc", config.width, 4 * config.width, kInitialDeviation)),
        mlp_c_proj_(conv1d(name + ".mlp.c_proj", 4 * config.width, config.width, residual(config))),
        attn_dropout_{name + ".attn.dropout", static_cast<float>(config.dropout)},
        mlp_dropout_{name + ".mlp.dropout", static_cast<float>(config.dropout)} {}

  Variable operator()(const Variable& x, bool training) const {
    const Variable qkv = c_attn_(ln_1_(x));
    return after_attention(x, attention(qkv, heads_, heads_), training);
  }

  Variable decode(const Variable& x, KeyValueCache& cache, std::size_t layer) const {
    const Variable qkv = c_attn_(ln_1_(x));
    const Variable y(
        cached_attention(qkv.data(), cache.layers[layer], cache.length, cache.capacity, heads_));
    return after_attention(x, y, /*training=*/false);
  }

  void visit_parameters(const std::function<void(const Parameter&)>& visit) const override {
    for (const Module* part : std::initializer_list<const Module*>{&ln_1_, &c_attn_, &attn_c_proj_,
                                                                   &ln_2_, &c_fc_, &mlp_c_proj_}) {
      part->visit_parameters(visit);
    }
  }

 private:
  static double residual(const Gpt2Config& config) {
    return kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  }
  static Linear conv1d(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                       double deviation) {
    return Linear(name, inputs, outputs, /*with_bias=*/true, WeightLayout::in_out,
                  Initializer::normal(deviation));
  }

  Variable after_attention(const Variable& x, const Variable& attended, bool training) const {
    const auto [middle, normed] = ln_2_(x, attn_dropout_(attn_c_proj_(attended), training));
    return add(middle, mlp_dropout_(mlp(normed), training));
  }

  /// c_proj(gelu(c_fc(x)))
  Variable mlp(const Variable& x) const {
    return gelu_mlp(x, c_fc_.weight, c_fc_.bias, mlp_c_proj_.weight, mlp_c_proj_.bias,
                    WeightLayout::in_out);
  }

  std::int64_t heads_;
  LayerNorm ln_1_;
  Linear c_attn_;
  Linear attn_c_proj_;
  LayerNorm ln_2_;
  Linear c_fc_;
  Linear mlp_c_proj_;
  Dropout attn_dropout_;
  Dropout mlp_dropout_;
};

Gpt2::Gpt2(const Gpt2Config& config)
    : config_(config),
      wte_("transformer.wte", config.vocab_size, config.width,
           Initializer::normal(kInitialDeviation)),
      wpe_("transformer.wpe", config.context, config.width, Initializer::normal(kInitialDeviation)),
      ln_f_("transformer.ln_f", config.width, static_cast<float>(config.norm_epsilon)) {
  check(config.vocab_size > 0 && config.context > 0 && config.layers > 0 && config.heads > 0 &&
            config.width > 0,
        "GPT-2 needs positive sizes: vocab_size {}, context {}, layers {}, heads {}, width {}",
        config.vocab_size, config.context, config.layers, config.heads, config.width);
  check(config.width % config.heads == 0, "GPT-2 of width {} cannot have {} heads of equal size",
        config.width, config.heads);
  check(config.dropout >= 0.0 && config.dropout < 1.0, "dropout {} is not in [0, 1)",
        config.dropout);
  // wte is used by the embedding and by the head; it lives in the first unit, which runs twice.
  units_.push_back(std::make_unique<Unit>("embedding", concatenated({&wte_, &wpe_, &ln_f_}),
                                          /*at_both_ends=*/true));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = "h." + std::to_string(i);
    blocks_.push_back(std::make_unique<Block>("transformer." + name, config));
    units_.push_back(std::make_unique<Unit>(name, parameters_of(*blocks_.back())));
  }
}

Gpt2::~Gpt2() = default;

Variable Gpt2::embed(const Tensor& inputs, std::int64_t first_position, bool training) const {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(inputs.numel()));
  for (std::int64_t i = 0; i < inputs.numel(); ++i) {
    positions[i] = static_cast<std::int32_t>(first_position + i % inputs.size(1));
  }
  const Variable x = add(wte_(inputs), wpe_(Tensor::from(positions, inputs.shape())));
  return Dropout{"transformer.dropout", static_cast<float>(config_.dropout)}(x, training);
}

void Gpt2::check_tokens(const Tensor& inputs, std::int64_t first_position) const {
  check(inputs.dtype() == DType::i32 && inputs.rank() == 2 && inputs.numel() > 0,
        "GPT-2 reads token ids as i32 [B, T], got {}", describe(inputs));
  check(first_position + inputs.size(1) <= config_.context,
        "a sequence of {} tokens is longer than the model's context of {}",
        first_position + inputs.size(1), config_.context);
}

Variable Gpt2::trunk(const Tensor& inputs, bool training, KeyValueCache* cache) {
  const std::int64_t cached = cache != nullptr ? cache->length : 0;
  check_tokens(inputs, cached);
  Variable x = units_[0]->run_once([&](const Variable&) { return embed(inputs, cached, training); },
                                   Variable());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = *blocks_[i];
    x = units_[i + 1]->run(
        [&block, training, cache, i](const Variable& h) {
          return cache != nullptr ? block.decode(h, *cache, i) : block(h, training);
        },
        x);
  }
  if (cache != nullptr) cache->length += inputs.size(1);
  return x;
}

Variable Gpt2::loss(const Tensor& inputs, const Tensor& targets, double loss_scale, bool training) {
  check(targets.shape() == inputs.shape(), "targets {} do not match inputs {}", describe(targets),
        describe(inputs));
  const Variable x = trunk(inputs, training, nullptr);
  return units_[0]->run_once(
      [&](const Variable& h) {
        return linear_cross_entropy(ln_f_(h), wte_.weight, targets, loss_scale);
      },
      x);
}

Variable Gpt2::logits(const Tensor& inputs) {
  const Variable x = trunk(inputs, /*training=*/false, nullptr);
  return units_[0]->run_once(
      [&](const Variable& h) { return linear(ln_f_(h), wte_.weight, Parameter()); }, x);
}

KeyValueCache Gpt2::make_cache() const {
  return {.layers = std::vector<Tensor>(blocks_.size()), .capacity = config_.context};
}

Tensor Gpt2::next_logits(const Tensor& tokens, KeyValueCache& cache) {
  const NoGradient no_gradient;
  const CategoryScope category(Category::activations);
  const Variable x = trunk(tokens.reshape({1, tokens.numel()}), /*training=*/false, &cache);
  const Tensor rows = x.data().reshape({tokens.numel(), config_.width});
  const Variable last(rows.slice(tokens.numel() - 1, tokens.numel()));
  const Variable row = units_[0]->run_once(
      [&](const Variable& h) {
        // Not linear(): logits rounded to 16 bits would often tie.
        const Tensor logits = Tensor::empty({1, config_.vocab_size}, statistics_dtype(h.dtype()));
        matmul(logits, ln_f_(h).data(), wte_.weight.data(), Transpose::no, Transpose::yes);
        return Variable(logits);
      },
      last);
  return row.data().reshape({config_.vocab_size});
}

void Gpt2::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  wte_.visit_parameters(visit);
  wpe_.visit_parameters(visit);
  for (const auto& block : blocks_) block->visit_parameters(visit);
  ln_f_.visit_parameters(visit);
}

std::vector<MatmulShape> Gpt2::training_matmuls(std::int64_t tokens) const {
  constexpr auto no = Transpose::no;
  constexpr auto yes = Transpose::yes;
  const std::int64_t width = config_.width;
  const std::int64_t vocab = config_.vocab_size;
  std::vector<MatmulShape> shapes;
  // Forward y = x W, then dx = dy W^T and dW = x^T dy, for weights stored [in, out].
  const auto conv1d = [&](std::int64_t inputs, std::int64_t outputs) {
    shapes.push_back({tokens, outputs, inputs, no, no, config_.layers});
    shapes.push_back({tokens, inputs, outputs, no, yes, config_.layers});
    shapes.push_back({inputs, outputs, tokens, yes, no, config_.layers});
  };
  conv1d(width, 3 * width);
  conv1d(width, width);
  conv1d(width, 4 * width);
  conv1d(4 * width, width);
  // The head's weight is stored [out, in].
  shapes.push_back({tokens, vocab, width, no, yes, 1});
  shapes.push_back({tokens, width, vocab, no, no, 1});
  shapes.push_back({vocab, width, tokens, yes, no, 1});
  return shapes;
}

double Gpt2::training_flops(std::int64_t batch, std::int64_t sequence_length) const {
  const auto width = static_cast<double>(config_.width);
  const auto layers = static_cast<double>(config_.layers);
  const auto length = static_cast<double>(sequence_length);
  const double block_weights = 12.0 * width * width;  // 3 + 1 + 4 + 4 squares
  const double head_weights = static_cast<double>(config_.vocab_size) * width;
  const double per_token =
      6.0 * (layers * block_weights + head_weights) + 6.0 * layers * width * length;
  return static_cast<double>(batch) * length * per_token;
}

}  // namespace tessera
