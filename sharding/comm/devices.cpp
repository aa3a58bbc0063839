#include "sharding/comm/devices.h"

#include <algorithm>

#include "runtime/backends.h"
#include "runtime/category.h"
#include "runtime/cuda/device.h"
#include "runtime/integer.h"

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
  return first;  // opening a device that does not exist raises Error
}

void reduce_from_devices(Out result, std::span<const Tensor> sources, Reduction reduction, int own,
                         std::int64_t staging_bytes) {
  const auto is_remote = [&](const Tensor& source) { return source.device() != result.device(); };
  const std::int64_t copies = std::count_if(sources.begin(), sources.end(), is_remote);
  if (copies == 0) return tree_reduce(result, sources, reduction);

  const DType dtype = sources[0].dtype();
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t whole = round_up(result.numel() * size, kAlignment);
  const std::int64_t most = std::max(kAlignment, staging_bytes / copies / kAlignment * kAlignment);
  const std::int64_t step = std::min(whole, most) / size;
  const CategoryScope category(Category::workspace);
  const Tensor staging = Tensor::empty({copies * step}, dtype);
  for (std::int64_t begin = 0; begin < result.numel(); begin += step) {
    const ElementRange range = {begin, std::min(result.numel(), begin + step)};
    Tensors pieces(sources.size());
    std::int64_t at = 0;
    for (std::size_t k = 0; k < sources.size(); ++k) {
      const std::size_t r = (static_cast<std::size_t>(own) + 1 + k) % sources.size();
      pieces[r] = elements(sources[r], range);
      if (!is_remote(sources[r])) continue;
      const Tensor here = staging.slice(at, at + range.count());
      here.copy_from(pieces[r]);
      pieces[r] = here;
      at += step;
    }
    tree_reduce(elements(result, range), pieces, reduction);
  }
}

}  // namespace tessera
