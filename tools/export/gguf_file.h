// The GGUF format: a model's tensors and everything that llama.cpp must know of it, in one file.
//
// Layout (github.com/ggml-org/ggml, docs/gguf.md, version 3; little-endian):
//
//   "GGUF", u32 version, u64 tensors, u64 keys
//   keys       text, u32 type, value               text: u64 bytes, bytes
//   tensors    text, u32 dimensions, u64 sizes, u32 type, u64 offset of its data
//   data       each tensor at a multiple of 32 bytes, counted from the data's start, also one
//
// Sizes begin with the dimension of neighbours: a matrix of 3 rows and 5 columns has the sizes 5, 3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/enum_names.h"
#include "runtime/tensor.h"

namespace tessera {

/// How a file holds the elements of a tensor. In q8_0 32 neighbours are 8-bit numbers with one f16
/// factor: 34 bytes.
enum class GgufType : std::uint8_t { f32, f16, bf16, q8_0 };

template <>
inline constexpr EnumNames<GgufType> kEnumNames<GgufType> = {"GGUF type",
                                                             {"f32", "f16", "bf16", "q8_0"}};

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>,
                               std::vector<std::string>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensorInfo {
  std::string name;
  /// As elsewhere: the dimension of neighbours last. Rows of q8_0 have a multiple of 32 elements.
  Shape shape;
  GgufType type = GgufType::f32;
};

/// Writes a file atomically. `produce` passes the elements of the tensors, f32 on the host and in the
/// order of `infos`, to the function that it receives; a tensor may come in pieces of whole rows.
/// Raises Error if a tensor gets more or fewer elements than its info says.
void write_gguf(const std::filesystem::path& path, const GgufKeys& keys,
                const std::vector<GgufTensorInfo>& infos,
                const std::function<void(const std::function<void(const Tensor&)>&)>& produce);

}  // namespace tessera
