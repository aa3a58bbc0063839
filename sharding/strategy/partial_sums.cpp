#include "sharding/strategy/partial_sums.h"

#include <algorithm>
#include <bit>

#include "kernels/add/op.h"
#include "runtime/category.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/gradient_sums.h"

namespace tessera {

PartialSums::PartialSums(const GroupResources& resources) : resources_(resources) {
  if (resources.plan.partial_sums == 0) return;
  const bool on_host = resources.group.placement.offload == Offload::all;
  std::int64_t largest = 0;
  {
    const CategoryScope category(Category::gradients);
    for (int level = 0; level < resources.plan.partial_sums; ++level) {
      levels_.emplace_back(resources.shards.size());
      for (int b = 0; b < resources.group.bucket_count(); ++b) {
        for (int p = 0; p < resources.buckets()[b].trained_count; ++p) {
          const std::int64_t count = resources.owned(b, p).count;
          levels_.back()[static_cast<std::size_t>(resources.index_of(b, p))] =
              on_host ? Tensor::empty_on_host({count}, DType::f32)
                      : Tensor::empty({count}, DType::f32);
          largest = std::max(largest, count);
        }
      }
    }
  }
  if (!on_host) return;
  const CategoryScope category(Category::communication);
  scratch_ = Tensor::empty({largest}, DType::f32);
}

bool PartialSums::keep(int b, int micro_batch, const Tensors& reduced) {
  const int levels = static_cast<int>(levels_.size());
  const int waiting = std::countr_one(static_cast<unsigned>(micro_batch));
  for (int level = 0; level < std::min(waiting, levels); ++level) {
    const Tensors sums = of(level, b);
    if (!scratch_.defined()) {
      queue_accumulation(reduced, sums, /*first=*/false);
      continue;
    }
    communication_stream().enqueue([reduced, sums, scratch = scratch_] {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const Tensor sum = scratch.slice(0, sums[i].numel());
        sum.copy_from(sums[i]);
        const Tensor value = reduced[i].reshape(sum.shape());
        add(value, value, sum);
      }
    });
  }
  if (waiting >= levels) return false;
  queue_accumulation(of(waiting, b), reduced, /*first=*/true);
  return true;
}

Tensors PartialSums::of(int level, int b) const {
  Tensors sums;
  for (int p = 0; p < resources_.buckets()[b].trained_count; ++p) {
    sums.push_back(levels_[level][static_cast<std::size_t>(resources_.index_of(b, p))]);
  }
  return sums;
}

}  // namespace tessera
