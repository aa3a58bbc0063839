// The adapters of a model (autograd/adapter.h): which layers have one, and how they start.
//
// The layers are those of attention and of feed-forward networks, in every block, experts included. Their names
// are those of their weights without ".weight": "model.layers.0.self_attn.q_proj". The factors of their adapters
// are the parameters "<layer>.lora_A.weight" [r, in] and "<layer>.lora_B.weight" [out, r]; of E experts
// [E, r, in] and [E, out, r].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "runtime/enum_names.h"

namespace tessera {

/// The factor of an adapter's addition: alpha / r (Hu et al. 2021), or alpha / sqrt(r), which keeps the size of
/// gradients for large r (Kalajdzievski 2023).
enum class AdapterScaling { standard, rank_stabilized };
template <>
inline constexpr EnumNames<AdapterScaling> kEnumNames<AdapterScaling> = {
    "scaling", {"standard", "rank_stabilized"}};

/// How the frozen weights of linear layers are held: in bf16, or packed in 4 bits (kernels/nf4/op.h), which is
/// QLoRA (Dettmers et al. 2023).
enum class AdapterBase { bf16, nf4 };
template <>
inline constexpr EnumNames<AdapterBase> kEnumNames<AdapterBase> = {"base", {"bf16", "nf4"}};

struct AdapterOptions {
  /// r; 0: no adapter.
  std::int64_t rank = 0;
  double alpha = 16.0;
  /// Not for experts, which have none.
  double dropout = 0.0;
  AdapterScaling scaling = AdapterScaling::standard;
  /// Patterns of layers' names or of their ends behind a dot, separated by commas: "q_proj,*.0.mlp.*". Empty:
  /// all layers.
  std::string targets;
  /// All weights that may have an adapter are held so. No value: in the dtype that the model computes in.
  std::optional<AdapterBase> base;
};

double scaling_factor(const AdapterOptions& options);

/// "h.0.attn.c_attn" of "h.0.attn.c_attn.weight".
std::string layer_name(const std::string& weight);
/// The weights of the blocks' linear layers, experts included. They may have an adapter, and a run that computes in
/// fp8 multiplies them in 8 bits (autograd/fp8.h).
std::vector<Parameter> adaptable_weights(const LanguageModel& model);

/// Gives adapters to the layers that options.targets names, freezes all other parameters, and packs the base if
/// options.base says so. A starts as PyTorch's linear layers do, uniform on [-1 / sqrt(in), 1 / sqrt(in)), and B
/// with zeros. Nothing happens if the rank is 0. Raises Error, before anything changes, if a pattern matches no
/// layer. Call this before a strategy takes over the parameters.
void add_adapters(LanguageModel& model, const AdapterOptions& options);
/// Whether the model has any.
bool has_adapters(const LanguageModel& model);

}  // namespace tessera
