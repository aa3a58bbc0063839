#include "models/shard_file.h"

#include <algorithm>
#include <bit>
#include <span>

#include "kernels/cast/op.h"
#include "kernels/nf4/pack.h"
#include "runtime/check.h"
#include "runtime/host_pieces.h"

namespace tessera {
namespace {

/// Whether no value is NaN or infinite: both have the largest exponent.
bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t found = 0;
  for (const float value : values) {
    found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  }
  return found == 0;
}

/// Copies a piece of a stored tensor, both on the host.
void copy_or_cast(const Tensor& to, const Tensor& from) {
  if (from.dtype() == to.dtype()) {
    to.copy_from(from);
  } else {
    cast(to, from);
  }
}

void check_finite(const Tensor& values, const Parameter& parameter,
                  const std::filesystem::path& folder) {
  check(all_finite({values.data<float>(), static_cast<std::size_t>(values.numel())}),
        "{}: parameter '{}' has a value that is NaN or infinite; the file is damaged, or the "
        "training run diverged",
        folder.string(), parameter.name());
}

}  // namespace

void copy_elements(const Tensor& to, const NamedTensors& tensors, std::int64_t first) {
  std::int64_t begin = 0;  // of the tensor, among all elements
  for (const auto& [name, tensor] : tensors) {
    const std::int64_t end = begin + tensor.numel();
    const std::int64_t from = std::max(begin, first), until = std::min(end, first + to.numel());
    if (from < until) {
      const Tensor flat = tensor.reshape({tensor.numel()});
      copy_or_cast(to.slice(from - first, until - first), flat.slice(from - begin, until - begin));
    }
    begin = end;
  }
}

void fill_shard(const Shard& shard, const NamedTensors& tensors,
                const std::filesystem::path& folder) {
  // Converted on the host, where the file is mapped: the same bits on every device.
  const Tensor stored = shard.data.reshape({shard.data.numel()}).slice(0, shard.count());
  if (shard.parameter.packed()) {
    const auto read = [&](const Tensor& values, std::int64_t first) {
      copy_elements(values, tensors, first);
      check_finite(values, shard.parameter, folder);
    };
    return nf4_pack(stored, shard.elements(), shard.parameter.shape(), read);
  }
  write_from_host(stored, [&](const Tensor& piece, std::int64_t begin) {
    shard.elements().from(begin).for_each_run(
        piece.numel(), [&](std::int64_t element, std::int64_t offset, std::int64_t count) {
          copy_elements(piece.slice(offset, offset + count), tensors, element);
        });
    Tensor values = piece;
    if (piece.dtype() != DType::f32) {  // a frozen parameter
      values = Tensor::empty_on_host(piece.shape(), DType::f32);
      copy_or_cast(values, piece);
    }
    check_finite(values, shard.parameter, folder);
  });
}

}  // namespace tessera
