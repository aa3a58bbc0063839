#include "models/rms_decoder.h"

#include "runtime/half.h"

namespace tessera {
namespace {

/// The f32 nearest to the number, rounded to this dtype.
float rounded(double number, DType dtype) {
  const auto single = static_cast<float>(number);
  if (dtype == DType::bf16) return static_cast<float>(bfloat16(single));
  if (dtype == DType::f16) return static_cast<float>(float16(single));
  return single;
}

}  // namespace

RmsDecoder::RmsDecoder(const TransformerShape& shape, const Options& options)
    : Decoder(shape),
      options_(options),
      embed_tokens_("model.embed_tokens", shape.vocab_size, shape.width, options.initializer,
                    Divided::vocabulary, options.padding_id),
      norm_("model.norm", shape.width, static_cast<float>(options.norm_epsilon),
            options.norm_offset) {
  if (options.tied) {
    add_tied_ends({&embed_tokens_, &norm_});
  } else {
    add_embedding(embed_tokens_);
  }
}

Variable RmsDecoder::embed(const Tensor& ids, const Pass&) const {
  const Variable x = embed_tokens_(ids);
  if (!options_.embedding_scale) return x;
  return scale(x, rounded(*options_.embedding_scale, x.dtype()));
}

void RmsDecoder::add_blocks(const MakeBlock& make) {
  for (std::int64_t i = 0; i < shape().layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    add_block(name, make("model." + name, i));
  }
  if (options_.tied) return;
  lm_head_.emplace("lm_head", shape().width, shape().vocab_size, /*with_bias=*/false,
                   WeightLayout::out_in, options_.initializer,
                   LayerCut{.divided = Divided::vocabulary, .pieces = shape().vocab_size});
  add_head({&norm_, &*lm_head_});
}

void RmsDecoder::visit_parameters(const std::function<void(const Parameter&)>& visit) const {
  embed_tokens_.visit_parameters(visit);
  for (const auto& block : blocks()) block->visit_parameters(visit);
  norm_.visit_parameters(visit);
  if (lm_head_) lm_head_->visit_parameters(visit);
}

}  // namespace tessera
