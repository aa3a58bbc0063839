// Hugging Face's form of 8-bit weights: a matrix in e4m3, with a scale for each block of 128 x 128.
//
//   "...q_proj.weight"              e4m3 [out, in]
//   "...q_proj.weight_scale_inv"    f32 or bf16 [out / 128, in / 128]
//
// A weight is its 8-bit number times its block's entry of weight_scale_inv. The block's largest magnitude is 448,
// the largest e4m3 number. config.json names the form as quantization_config. Published models have it
// (Qwen3-8B-FP8, DeepSeek-V3).
// Source: Transformers 5.23, FineGrainedFP8Config and integrations/finegrained_fp8.py.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/config_reader.h"
#include "runtime/tensor.h"

namespace tessera {

/// Tensors on the host.
struct Fp8Form {
  Tensor numbers;         // e4m3 [out, in]
  Tensor inverse_scales;  // f32 [out / 128, in / 128]
};

/// Whether a tensor of this shape is a matrix of whole blocks. No other has the form here.
bool suits_fp8_form(const Shape& shape);
/// The name of a weight's inverse scales.
std::string scales_name(const std::string& weight);
Shape scales_shape(const Shape& weight);

/// `weight` is floating, on the host, and of a shape that suits. The bits are those of Transformers.
Fp8Form to_fp8_form(const Tensor& weight);
/// The weight in f32. Raises Error unless shapes and dtypes fit each other.
Tensor from_fp8_form(const Tensor& numbers, const Tensor& inverse_scales);

/// The entry of config.json. `kept` are linear layers with other weights.
nlohmann::json fp8_form_entry(const std::vector<std::string>& kept);
/// Raises Error if config.json names another form of weights.
void check_weights_form(const ConfigReader& config);

}  // namespace tessera
