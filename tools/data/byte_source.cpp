#include "tools/data/byte_source.h"

#include <algorithm>

namespace tessera {

std::size_t FileSource::read(std::span<std::byte> bytes) {
  const auto left = static_cast<std::size_t>(file_.size() - consumed_);
  bytes = bytes.first(std::min(bytes.size(), left));
  file_.read(consumed_, bytes);
  consumed_ += static_cast<std::int64_t>(bytes.size());
  return bytes.size();
}

}  // namespace tessera
