// HostCopy: a tensor's elements on their way to the host.
//
//   const HostCopy<float> losses(sums);             // queues a copy to pinned memory
//   const HostCopy<std::int64_t> words(norm.words());
//   current_stream().synchronize();                 // the host waits once
//   use(losses.values(), words.values());
//
// Tensor::to_vector makes the host wait for each tensor, and copies to pageable memory, for which
// CUDA waits once more.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/capture.h"
#include "runtime/context.h"
#include "runtime/tensor.h"

namespace tessera {

template <typename T>
class HostCopy {
 public:
  /// Queues the copy on the current stream. A tensor in host memory is not copied: the caller must
  /// not change it before values(). Raises Error in a capture.
  explicit HostCopy(const Tensor& source) : copy_(source) {
    check_host_may_wait();
    if (source.device() == Device{}) return;
    copy_ = Tensor::empty_on_host(source.shape(), source.dtype());
    copy_.copy_from(source);
  }

  /// The elements, once the caller has waited for the stream; zeros in a dry run. Raises Error if the
  /// dtype is not that of T.
  std::vector<T> values() const {
    std::vector<T> values(static_cast<std::size_t>(copy_.numel()));
    const T* const from = copy_.data<T>();
    if (!context().is_dry()) std::copy_n(from, values.size(), values.begin());
    return values;
  }

 private:
  Tensor copy_;
};

}  // namespace tessera
