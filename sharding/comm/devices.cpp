#include "sharding/comm/devices.h"

#include <algorithm>

#include "runtime/backends.h"
#include "runtime/category.h"
#include "runtime/cuda/device.h"

namespace tessera {
namespace {

/// Copies begin at multiples of this.
constexpr std::int64_t kAlignment = 256;

}  // namespace

Device device_of_rank(const Device& first, int rank) {
  if constexpr (kHasCuda) {
    const int count = cuda::device_count();
    if (!first.is_cpu() && first.index < count) {
      return {first.type, (first.index + rank) % count};
    }
  }
  return first;  // one that is not there says so when it is opened
}

void reduce_from_devices(Out result, std::span<const Tensor> sources, Reduction reduction,
                         std::int64_t staging_bytes) {
  const auto afar = [&](const Tensor& source) { return source.device() != result.device(); };
  const std::int64_t copies = std::count_if(sources.begin(), sources.end(), afar);
  if (copies == 0) return tree_reduce(result, sources, reduction);

  const DType dtype = sources[0].dtype();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t whole = (result.numel() * size + kAlignment - 1) / kAlignment * kAlignment;
  const std::int64_t most = std::max(kAlignment, staging_bytes / copies / kAlignment * kAlignment);
  const std::int64_t piece_bytes = std::min(whole, most);
  const CategoryScope category(Category::workspace);
  const Tensor staging = Tensor::empty({copies * piece_bytes / size}, dtype);
  const std::int64_t step = piece_bytes / size;
  for (std::int64_t begin = 0; begin < result.numel(); begin += step) {
    const ElementRange range = {begin, std::min(result.numel(), begin + step)};
    Tensors pieces;
    std::int64_t at = 0;
    for (const Tensor& source : sources) {
      pieces.push_back(elements(source, range));
      if (!afar(source)) continue;
      const Tensor here = staging.slice(at, at + range.count());
      here.copy_from(pieces.back());
      pieces.back() = here;
      at += step;
    }
    tree_reduce(elements(result, range), pieces, reduction);
  }
}

}  // namespace tessera
