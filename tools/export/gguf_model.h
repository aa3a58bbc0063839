// How llama.cpp describes a model of each family: keys, names and layouts of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/registry.h"
#include "models/tensor_names.h"
#include "runtime/tensor.h"
#include "tools/export/gguf_file.h"

namespace tessera {

/// general.architecture and the keys of that architecture. Raises Error with the reason if llama.cpp
/// computes another model than this one. A family must be GPT-2, Llama, Mistral, Qwen2.5, Qwen3 or
/// Qwen3-MoE; GELU must be in its tanh form, RoPE's scaling linear, llama3 or YaRN with its usual
/// numbers; every layer of a mixture must have experts.
GgufKeys model_keys(const Hyperparameters& hyperparameters);

/// A warning if llama.cpp computes long rows in another way, else an empty text: its Llama and Qwen
/// have no windows of attention.
std::string difference(const Hyperparameters& hyperparameters);

/// The order of a stored matrix's rows in a GGUF file.
struct GgufLayout {
  /// Conv1D of GPT-2 has [inputs, outputs]; ggml has [outputs, inputs].
  bool transposed = false;
  /// Not 0: rows are those of so many heads, and the two channels that RoPE rotates together become
  /// neighbours (RopePairs::interleaved). llama.cpp rotates Llama's so, and Qwen's as they are stored.
  std::int64_t paired_heads = 0;
};

struct GgufTensor {
  std::string name;
  GgufLayout layout;
  /// Whether llama.cpp wants it in f32 however the file holds others: vectors, tables of positions and
  /// routers.
  bool wide = false;
  /// End to end, these stored tensors are it.
  std::vector<Tensor> parts;

  Shape shape() const;
};

/// The tensors of a parameter, given its name and the tensors that a model folder holds for it. One
/// parameter is two tensors where it holds gates and their factors of all experts.
std::vector<GgufTensor> tensors_of(const Hyperparameters& hyperparameters,
                                   const std::string& parameter, const TensorNames& names,
                                   const std::vector<Tensor>& stored);

/// The divisors of RoPE's frequencies, [head_size / 2] f32, which llama.cpp's Llama reads from
/// "rope_freqs.weight"; none if all are 1 or the family scales by keys.
std::optional<Tensor> rope_divisors(const Hyperparameters& hyperparameters);

}  // namespace tessera
