#include "models/fp8_form.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/cast/op.h"
#include "kernels/fp8/grid.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = 128;

Tensor in_f32(const Tensor& values) {
  if (values.dtype() == DType::f32) return values;
  const Tensor converted = Tensor::empty_on_host(values.shape(), DType::f32);
  cast(converted, values);
  return converted;
}

std::uint8_t* codes_of(const Tensor& numbers) {
  return reinterpret_cast<std::uint8_t*>(numbers.raw());
}

/// f(block, begin) for each row of each block: `begin` is the place of its 128 elements.
template <typename F>
void for_each_row_of_blocks(const Shape& shape, const F& f) {
  const std::int64_t columns = shape[1], across = columns / kBlock;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    for (std::int64_t block = 0; block < across; ++block) {
      f(row / kBlock * across + block, row * columns + block * kBlock);
    }
  }
}

}  // namespace

bool suits_fp8_form(const Shape& shape) {
  return shape.rank() == 2 && shape.numel() > 0 && shape[0] % kBlock == 0 && shape[1] % kBlock == 0;
}

std::string scales_name(const std::string& weight) {
  return weight + "_scale_inv";
}

Shape scales_shape(const Shape& weight) {
  return {weight[0] / kBlock, weight[1] / kBlock};
}

Fp8Form to_fp8_form(const Tensor& weight) {
  const Tensor values = in_f32(weight);
  const auto* const from = values.data<float>();
  const Fp8Grid grid = Fp8Grid::of(DType::e4m3);
  const Fp8Form form = {Tensor::empty_on_host(weight.shape(), DType::e4m3),
                        Tensor::empty_on_host(scales_shape(weight.shape()), DType::f32)};
  std::vector<float> scales(static_cast<std::size_t>(form.inverse_scales.numel()), 0.0f);
  for_each_row_of_blocks(weight.shape(), [&](std::int64_t block, std::int64_t begin) {
    float& largest = scales[static_cast<std::size_t>(block)];
    for (std::int64_t i = begin; i < begin + kBlock; ++i)
      largest = std::max(largest, std::abs(from[i]));
  });
  for (std::size_t block = 0; block < scales.size(); ++block) {
    float& scale = scales[block];  // so far its largest magnitude
    scale = scale > 0.0f ? grid.largest / scale : 1.0f;
    form.inverse_scales.data<float>()[block] = 1.0f / scale;
  }
  std::uint8_t* const to = codes_of(form.numbers);
  for_each_row_of_blocks(weight.shape(), [&](std::int64_t block, std::int64_t begin) {
    const float scale = scales[static_cast<std::size_t>(block)];
    for (std::int64_t i = begin; i < begin + kBlock; ++i) to[i] = grid.nearest(from[i] * scale);
  });
  return form;
}

Tensor from_fp8_form(const Tensor& numbers, const Tensor& inverse_scales) {
  const Shape& shape = numbers.shape();
  check(numbers.dtype() == DType::e4m3 && suits_fp8_form(shape),
        "8-bit weights are {} {}; expected e4m3 with extents that are multiples of {}",
        name_of(numbers.dtype()), to_string(shape), kBlock);
  check(is_floating(inverse_scales.dtype()) && inverse_scales.shape() == scales_shape(shape),
        "the inverse scales of 8-bit weights {} are {} {}; expected floating ones {}",
        to_string(shape), name_of(inverse_scales.dtype()), to_string(inverse_scales.shape()),
        to_string(scales_shape(shape)));
  const Tensor scales = in_f32(inverse_scales);
  const Tensor values = Tensor::empty_on_host(shape, DType::f32);
  const std::uint8_t* const from = codes_of(numbers);
  auto* const to = values.data<float>();
  const Fp8Grid grid = Fp8Grid::of(DType::e4m3);
  for_each_row_of_blocks(shape, [&](std::int64_t block, std::int64_t begin) {
    const float scale = scales.data<float>()[block];
    for (std::int64_t i = begin; i < begin + kBlock; ++i) to[i] = grid.value_of(from[i]) * scale;
  });
  return values;
}

nlohmann::json fp8_form_entry(const std::vector<std::string>& kept) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kBlock, kBlock}},
          {"modules_to_not_convert", kept}};
}

void check_weights_form(const ConfigReader& config) {
  const auto form = config.object("quantization_config");
  if (!form) return;
  const std::string method = form->text("quant_method", "");
  check(
      method == "fp8" && form->text("fmt", "e4m3") == "e4m3" &&
          form->text("activation_scheme", "dynamic") == "dynamic" &&
          form->wholes("weight_block_size") == std::vector{kBlock, kBlock},
      "config.json: quantization_config names weights of the form {}; expected f32, bf16, f16, or "
      "quant_method \"fp8\" with e4m3 in blocks of {} x {} and dynamic activations",
      excerpt(method), kBlock, kBlock);
}

}  // namespace tessera
