#include "tools/export/gguf.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/hugging_face.h"
#include "models/registry.h"
#include "models/weight_files.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "tools/export/export.h"
#include "tools/export/gguf_model.h"
#include "tools/export/gguf_tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// llama.cpp's numbers for files by the type of most matrices.
std::uint32_t file_type_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  fail("no such GGUF type");
}

/// The type of a stored dtype: f64 becomes f32.
GgufType stored_type(DType dtype) {
  if (dtype == DType::bf16) return GgufType::bf16;
  return dtype == DType::f16 ? GgufType::f16 : GgufType::f32;
}

GgufTensorInfo info_of(const GgufTensor& tensor, std::optional<GgufType> wanted) {
  const Shape shape = tensor.shape();
  GgufType type = wanted.value_or(stored_type(tensor.parts[0].dtype()));
  if (type == GgufType::q8_0 && shape[shape.rank() - 1] % 32 != 0) type = GgufType::f16;
  if (tensor.wide) type = GgufType::f32;
  return {.name = tensor.name, .shape = shape, .type = type};
}

/// The rows of `from` in the order of a layout. The first dimension of `to` is that of the result.
void arrange(const Tensor& to, const Tensor& from, const GgufLayout& layout) {
  const std::int64_t rows = from.size(0);
  const std::int64_t columns = from.numel() / rows;
  const float* in = from.data<float>();
  float* out = to.data<float>();
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t row = r;
    if (layout.paired_heads != 0) {
      // Channel i of a head's first half, and of its second: rows 2i and 2i + 1.
      const std::int64_t head = rows / layout.paired_heads, half = head / 2, i = r % head;
      row = r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      out[layout.transposed ? c * rows + r : row * columns + c] = in[r * columns + c];
    }
  }
}

/// A stored tensor in f32 and in the order of the file.
Tensor arranged(const Tensor& stored, const GgufLayout& layout) {
  const Tensor values = Tensor::empty_on_host(stored.shape(), DType::f32);
  cast(values, stored);
  if (!layout.transposed && layout.paired_heads == 0) return values;
  const Tensor result = Tensor::empty_on_host(stored.shape(), DType::f32);
  arrange(result, values, layout);
  return result;
}

}  // namespace

std::string export_gguf(const GgufOptions& options) {
  RankContext context;
  const ContextGuard guard(context);
  check(!fs::exists(options.out), "{}: this file exists; choose another name or remove it",
        options.out.string());
  const fs::path folder = model_folder(options.model);
  const auto model = make_pretrained(folder);
  const Hyperparameters hyperparameters = read_hyperparameters(folder);
  GgufKeys keys = model_keys(hyperparameters);
  const TensorNames names = family_of(hyperparameters).tensor_names;
  const WeightFiles weights(folder, names);

  std::vector<GgufTensor> tensors;
  if (const auto divisors = rope_divisors(hyperparameters)) {
    tensors.push_back({.name = "rope_freqs.weight", .wide = true, .parts = {*divisors}});
  }
  for (const Parameter& parameter : parameters_of(*model)) {
    std::vector<Tensor> stored;
    for (const auto& [name, tensor] : weights.find(parameter)) stored.push_back(tensor);
    for (GgufTensor& tensor : tensors_of(hyperparameters, parameter.name(), names, stored)) {
      tensors.push_back(std::move(tensor));
    }
  }
  std::vector<GgufTensorInfo> infos;
  for (const GgufTensor& tensor : tensors) infos.push_back(info_of(tensor, options.type));

  const GgufType type = options.type.value_or(stored_type(tensors.back().parts[0].dtype()));
  keys.emplace_back("general.name", fs::absolute(options.model).filename().string());
  keys.emplace_back("general.file_type", file_type_of(type));
  keys.emplace_back("general.quantization_version", 2u);
  for (auto& key : tokenizer_keys(folder, shape_of(hyperparameters).vocab_size)) {
    keys.push_back(std::move(key));
  }
  write_gguf(options.out, keys, infos, [&](const auto& write) {
    for (const GgufTensor& tensor : tensors) {
      for (const Tensor& part : tensor.parts) write(arranged(part, tensor.layout));
    }
  });
  std::string warning = difference(hyperparameters);
  if (const std::string biases = left_out(*model); !biases.empty()) {
    warning += (warning.empty() ? "" : "; ") + biases;
  }
  return warning;
}

}  // namespace tessera
