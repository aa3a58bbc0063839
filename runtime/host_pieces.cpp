#include "runtime/host_pieces.h"

#include <algorithm>

#include "runtime/category.h"
#include "runtime/context.h"

namespace tessera {
namespace {

/// Large enough for a copy at full speed.
constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

}  // namespace

void write_from_host(const Tensor& tensor,
                     const std::function<void(const Tensor& piece, std::int64_t begin)>& write) {
  const Tensor flat = tensor.reshape({tensor.numel()});
  if (tensor.device().is_cpu()) return write(flat, 0);
  const std::int64_t most = kPieceBytes / static_cast<std::int64_t>(size_of(tensor.dtype()));
  const CategoryScope category(Category::workspace);
  const Tensor buffer = Tensor::empty_on_host({std::min(most, flat.numel())}, tensor.dtype());
  for (std::int64_t begin = 0; begin < flat.numel(); begin += most) {
    const std::int64_t end = std::min(flat.numel(), begin + most);
    const Tensor piece = buffer.slice(0, end - begin);
    write(piece, begin);
    flat.slice(begin, end).copy_from(piece);
    current_stream().synchronize();  // the buffer is written again
  }
}

}  // namespace tessera
