#include "tools/train/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

/// Bytes that one thread copies at a time.
constexpr std::int64_t kChunk = std::int64_t{1} << 20;

/// A copy in host memory. A GPU's copy is queued.
Tensor copy_on_host(const Tensor& values) {
  const Tensor copy = Tensor::empty_on_host(values.shape(), values.dtype());
  if (!values.device().is_cpu()) {
    copy.copy_from(values);
    return copy;
  }
  parallel_for(static_cast<std::int64_t>(values.bytes()), kChunk,
               [&](std::int64_t begin, std::int64_t end) {
                 std::memcpy(copy.raw() + begin, values.raw() + begin,
                             static_cast<std::size_t>(end - begin));
               });
  return copy;
}

}  // namespace

void CheckpointWriter::start(const std::filesystem::path& folder,
                             const std::vector<TensorToSave>& tensors, double share_of_core) {
  const CategoryScope category(Category::other);
  parts_.clear();
  context().compute_stream().synchronize();  // offloaded masters lie in host memory
  for (const TensorToSave& tensor : tensors) {
    parts_.push_back(tensor.part);
    copies_.push_back(copy_on_host(tensor.values));
  }
  current_stream().synchronize();
  pace_.emplace(share_of_core);
  task_.start([this, folder] {
    pace_->begin();
    make_folder(calls_, folder);
    const auto bytes_of = [&](std::size_t i) {
      return std::span<const std::byte>(copies_[i].raw(), copies_[i].bytes());
    };
    manifest_ = write_rank_file(calls_, folder, rank_, parts_, bytes_of, [this] { pace_->rest(); });
  });
}

CheckpointWriter::Result CheckpointWriter::finish() {
  if (pace_) pace_->hurry();
  std::string problem = task_.finish();
  copies_.clear();
  return {std::exchange(manifest_, {}), std::move(problem)};
}

}  // namespace tessera
