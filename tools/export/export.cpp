#include "tools/export/export.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/cast/op.h"
#include "models/adapters.h"
#include "models/fp8_form.h"
#include "models/hugging_face.h"
#include "models/peft.h"
#include "models/registry.h"
#include "models/routers.h"
#include "models/weight_files.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "runtime/safetensors.h"
#include "tools/checkpoint/convert.h"
#include "tools/export/merge.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCopied = {"tokenizer.json",
                                "tokenizer_config.json",
                                "tokenizer.model",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "merges.txt",
                                "chat_template.jinja",
                                "generation_config.json"};

/// Keys that a tokenizer decides. The model does not know them.
constexpr std::array kTokenKeys = {"bos_token_id", "eos_token_id", "pad_token_id"};

/// A tensor of a file: elements of a parameter from `first` on, as they are stored on the host.
struct FileTensor {
  std::string name;
  Tensor stored;
  Parameter parameter;
  std::int64_t first = 0;
  /// e4m3: written in Hugging Face's form.
  DType written = DType::f32;

  /// The tensors that a file has for it.
  TensorInfos infos() const {
    TensorInfos infos = {{name, {.dtype = written, .shape = stored.shape()}}};
    if (is_fp8(written)) {
      infos.push_back({scales_name(name), {.shape = scales_shape(stored.shape())}});
    }
    return infos;
  }
  std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [name, info] : infos()) {
      bytes += info.shape.numel() * static_cast<std::int64_t>(size_of(info.dtype));
    }
    return bytes;
  }
};

/// A file's tensors.
using Part = std::vector<FileTensor>;

void check_empty(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    check(name != "config.json" && name.extension() != ".safetensors" &&
              name != "model.safetensors.index.json",
          "{}: a model is here already ({}); choose another folder", folder.string(),
          name.string());
  }
}

/// The dtype in which a stored tensor is written; `of_linear`: of a linear layer's weight.
DType written_dtype(const Tensor& stored, bool of_linear, const ExportOptions& options) {
  const DType dtype = options.dtype.value_or(stored.dtype());
  if (!is_fp8(dtype)) return dtype;
  return of_linear && suits_fp8_form(stored.shape()) ? dtype : DType::bf16;
}

/// The stored tensors in the order of the parameters, cut into files.
std::vector<Part> parts_of(const LanguageModel& model, const WeightFiles& weights,
                           const ExportOptions& options) {
  std::set<std::string> linear;
  for (const Parameter& weight : adaptable_weights(model)) linear.insert(weight.name());
  std::vector<Part> parts(1);
  std::int64_t bytes = 0;
  for (const Parameter& parameter : parameters_of(model)) {
    if (parameter.in_adapter()) continue;
    std::int64_t first = 0;
    for (const auto& [name, stored] : weights.find(parameter)) {
      const FileTensor tensor{name, stored, parameter, first,
                              written_dtype(stored, linear.contains(parameter.name()), options)};
      const std::int64_t more = tensor.bytes();
      if (bytes + more > options.file_bytes && !parts.back().empty()) {
        parts.emplace_back();
        bytes = 0;
      }
      parts.back().push_back(tensor);
      bytes += more;
      first += stored.numel();
    }
  }
  return parts;
}

void write_part(const fs::path& path, const Part& part, const AdapterMerge* merge) {
  TensorInfos infos;
  for (const FileTensor& tensor : part)
    std::ranges::copy(tensor.infos(), std::back_inserter(infos));
  write_safetensors(path, infos, {{"format", "pt"}}, [&](const auto& write) {
    for (const FileTensor& tensor : part) {
      const Tensor stored = merge == nullptr
                                ? tensor.stored
                                : merge->merged(tensor.parameter, tensor.stored, tensor.first);
      if (is_fp8(tensor.written)) {
        const Fp8Form form = to_fp8_form(stored);
        write(form.numbers);
        write(form.inverse_scales);
      } else if (tensor.written == stored.dtype()) {
        write(stored);
      } else {
        const Tensor converted = Tensor::empty_on_host(stored.shape(), tensor.written);
        cast(converted, stored);
        write(converted);
      }
    }
  });
}

void write_weights(const std::vector<Part>& parts, const ExportOptions& options,
                   const AdapterMerge* merge) {
  if (parts.size() == 1) {
    return write_part(options.out / "model.safetensors", parts[0], merge);
  }
  nlohmann::json files = nlohmann::json::object();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    write_part(options.out / name, parts[i], merge);
    for (const FileTensor& tensor : parts[i]) {
      for (const auto& [stored_name, info] : tensor.infos()) files[stored_name] = name;
      total += tensor.bytes();
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", files}};
  write_file_atomically(options.out / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::f64:
      return "float64";
    default:
      return "float32";
  }
}

/// The layers of Transformers with tensors in 8 bits, and those with other matrices. All experts of a block are one.
struct Layers {
  std::set<std::string> in_8_bits, others;
};
Layers layers_of(const std::vector<Part>& parts) {
  Layers layers;
  for (const Part& part : parts) {
    for (const FileTensor& tensor : part) {
      if (tensor.stored.shape().rank() < 2) continue;
      const std::string& parameter = tensor.parameter.name();
      (is_fp8(tensor.written) ? layers.in_8_bits : layers.others)
          .insert(tensor.parameter.stacked() ? parameter.substr(0, parameter.rfind('.'))
                                             : layer_name(tensor.name));
    }
  }
  return layers;
}

void check_fp8(const LanguageModel& model, const Layers& layers) {
  check(model.config().at("model_type") != "gpt2",
        "--dtype fp8: Transformers has no such form for GPT-2's layers; choose bf16");
  check(!layers.in_8_bits.empty(),
        "--dtype fp8: no linear layer has extents that are multiples of 128; choose bf16");
  for (const std::string& layer : layers.in_8_bits) {
    check(!layers.others.contains(layer),
          "--dtype fp8: some extents of {} are not multiples of 128; choose bf16", layer);
  }
}

void write_config(const fs::path& folder, const LanguageModel& model, DType dtype,
                  const Layers& layers, const fs::path& out) {
  const nlohmann::json original = read_json_file(folder / "config.json");
  nlohmann::json config = model.config();
  for (const char* key : kTokenKeys) {
    if (original.contains(key)) config[key] = original[key];
  }
  config["torch_dtype"] = torch_name(dtype);
  if (!layers.in_8_bits.empty()) {
    std::vector<std::string> kept(layers.others.begin(), layers.others.end());
    kept.emplace_back("lm_head");
    config["quantization_config"] = fp8_form_entry(kept);
  }
  write_file_atomically(out / "config.json", config.dump(2) + "\n");
}

/// Copies the files of these names that a folder has.
template <typename Names>
void copy_files(const fs::path& folder, const Names& names, const fs::path& out) {
  for (const char* name : names) {
    if (fs::exists(folder / name)) {
      write_file_atomically(out / name, read_text_file(folder / name));
    }
  }
}

/// An adapter is stored as PEFT loads it.
std::string export_adapter(const ModelFiles& files, const ExportOptions& options) {
  check(!options.dtype, "an adapter keeps its dtype; give --merge to write a model with --dtype");
  make_writable_directory(options.out);
  copy_files(files.adapter, kCopied, options.out);
  copy_files(files.adapter, std::array{"adapter_config.json", "adapter_model.safetensors"},
             options.out);
  const auto model = make_pretrained(files.model);
  add_adapters(*model, read_adapter(files.adapter).options);
  for (const Parameter& parameter : parameters_of(*model)) {
    if (parameter.stacked() && parameter.in_adapter()) {
      return "PEFT has no adapters of this form for experts; give --merge for a model that "
             "Transformers loads";
    }
  }
  return "";
}

std::string export_merged(const ModelFiles& files, const ExportOptions& options) {
  const fs::path& folder = files.model;
  const auto model = make_pretrained(folder);
  const WeightFiles weights(folder, family_of(model->config()).tensor_names);
  std::optional<AdapterMerge> merge;
  if (!files.adapter.empty()) merge.emplace(files.adapter, *model, weights);
  const std::vector<Part> parts = parts_of(*model, weights, options);
  const Layers layers = layers_of(parts);
  const bool in_8_bits = options.dtype && is_fp8(*options.dtype);
  if (in_8_bits) check_fp8(*model, layers);

  make_writable_directory(options.out);
  write_weights(parts, options, merge ? &*merge : nullptr);
  copy_files(folder, kCopied, options.out);
  if (merge) copy_files(files.adapter, kCopied, options.out);
  write_config(folder, *model, in_8_bits ? DType::bf16 : parts[0][0].written, layers, options.out);
  return left_out(*model);
}

}  // namespace

std::string export_model(const ExportOptions& options) {
  check(options.file_bytes >= 1, "the most bytes of a file are {}; expected at least 1",
        options.file_bytes);
  RankContext context;
  const ContextGuard guard(context);
  const ModelFiles files = find_model(options.model, options.adapter);
  check(!options.merge || !files.adapter.empty(),
        "--merge: {} is no adapter, nor a run that has trained one; give --adapter DIR",
        options.model.string());
  check_empty(options.out);
  return files.adapter.empty() || options.merge ? export_merged(files, options)
                                                : export_adapter(files, options);
}

std::string left_out(const LanguageModel& model) {
  if (model.routers() == nullptr) return "";
  for (const RouterBias& bias : model.routers()->biases()) {
    if (std::all_of(bias.values.begin(), bias.values.end(), [](float b) { return b == 0.0f; })) {
      continue;
    }
    return "the biases of the routers are left out, because other programs have none in this "
           "model: they "
           "will choose other experts. Train with moe.balance lagged or none for a model that they "
           "compute alike";
  }
  return "";
}

std::string export_averages(const fs::path& run, const fs::path& out,
                            const std::function<std::string(const fs::path& model)>& write) {
  fs::path whole = (out / "").parent_path();  // without a slash at its end
  whole += ".whole";
  check(!fs::exists(whole), "{} exists; remove it, it is written meanwhile", whole.string());
  try {
    export_checkpoint(run, whole, /*ema=*/true);
    const std::string warning = write(whole);
    fs::remove_all(whole);
    return warning;
  } catch (...) {
    fs::remove_all(whole);
    throw;
  }
}

}  // namespace tessera
