// The names of a model's tensors in folders of torch.distributed.checkpoint.
//
//   hf           Transformers' names and layouts, which are ours
//   torchtitan   those of torchtitan's Llama 3: layers.0.attention.wq.weight. Queries and keys have Meta's order of
//                channels: RoPE's pairs are neighbours (2i, 2i + 1), and here (i, i + D / 2)
//                (transformers/models/llama/convert_llama_weights_to_hf.py has the permutation)
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/tensor_names.h"
#include "runtime/enum_names.h"
#include "runtime/shape.h"

namespace tessera {

enum class DcpNames { hf, torchtitan };
template <>
inline constexpr EnumNames<DcpNames> kEnumNames<DcpNames> = {"names", {"hf", "torchtitan"}};

/// The endings of the names of AdamW's moments: ours, and PyTorch's.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kDcpMoments = {
    {{".m", ".exp_avg"}, {".v", ".exp_avg_sq"}}};

/// A tensor of a folder.
struct DcpPart {
  std::string name;
  Shape shape;
  /// Whether its rows are heads in Meta's order.
  bool interleaved = false;
};

/// The tensors that hold a parameter. End to end, their elements are the parameter's, but for the order of rows.
/// Raises Error if torchtitan's Llama has no such parameter.
std::vector<DcpPart> dcp_parts(const std::string& parameter, const Shape& shape,
                               const TensorNames& hf, DcpNames names);

/// `count` rows of heads in the other order: from Meta's to ours, or from ours to Meta's.
enum class HeadOrder { ours, metas };
std::vector<std::byte> reordered(std::span<const std::byte> rows, std::int64_t count,
                                 std::int64_t head_size, HeadOrder to);

}  // namespace tessera
