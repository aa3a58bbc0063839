#include "sharding/strategy/gathered_parameters.h"

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

GatheredParameters::GatheredParameters(const GroupResources& resources, OwnValues& own_values)
    : resources_(resources),
      own_values_(own_values),
      generations_(resources.buckets().size()),
      changed_(resources.buckets().size()) {
  const CategoryScope category(Category::communication);
  const Placement& placement = resources.group.placement;
  std::vector<std::int64_t> elements;
  for (const BucketLayout& bucket : resources.buckets()) elements.push_back(bucket.elements);
  for (const std::int64_t size : resources.group.gather_slots.sizes(elements)) {
    slots_.push_back({.buffer = resources.buffer(size, placement.window_dtype)});
  }
  if (placement.reshard != Reshard::to_groups) return;
  for (const BucketLayout& bucket : resources.buckets()) {
    std::int64_t end = 0;
    for (const Segment& segment : bucket.segments) end += segment.range.count;
    const Tensor memory = Tensor::zeros({end / placement.reshard_ranks}, placement.window_dtype);
    kept_.emplace_back();
    end = 0;
    for (const Segment& segment : bucket.segments) {
      const std::int64_t begin = end;
      end += segment.range.count / placement.reshard_ranks;
      kept_.back().push_back(memory.slice(begin, end));
    }
  }
}

GatheredParameters::~GatheredParameters() {
  for (const BucketLayout& bucket : resources_.buckets()) {
    for (const Parameter& parameter : bucket.parameters) parameter.close();
  }
}

std::pair<Tensor, Tensor> GatheredParameters::make_own(int b, int p) {
  const DType dtype = resources_.group.own_dtype(resources_.parameter(b, p));
  return {own_values_.make(resources_.owned(b, p).count, dtype), own_values_.copy_of(b, p)};
}

void GatheredParameters::prefetch(int b, Direction direction) {
  if (const Slot& slot = slot_of(b); !slot.open && !holds(slot, b)) gather(b, direction);
}

void GatheredParameters::open(int b, Direction direction) {
  Slot& slot = slot_of(b);
  if (!holds(slot, b)) gather(b, direction);
  if (slot.open) return;
  slot.open = true;
  wait_for_communication(slot.ready);
  mark("open " + bucket(b).name);
  for (int p = 0; p < bucket(b).parameter_count(); ++p) {
    bucket(b).parameters[p].open(window_of(bucket(b), p, slot.buffer));
  }
}

void GatheredParameters::close(int b, bool again_in_backward) {
  Slot& slot = slot_of(b);
  if (!slot.open) return;
  for (const Parameter& parameter : bucket(b).parameters) parameter.close();
  slot.open = false;
  mark("close " + bucket(b).name);
  slot.released = context().compute_stream().record();
  if (again_in_backward && resources_.reshard_exchange != nullptr) {
    queue_copies(copies_out(b, slot.buffer));
  }
}

void GatheredParameters::masters_changed(int b, Writes, const Stream& writer) {
  ++generations_[b];
  // A launch writes to the slots.
  if (is_capturing()) before_every_launch([this, b] { ++generations_[b]; });
  changed_[b] = writer.record();
}

void GatheredParameters::gather(int b, Direction direction) {
  Slot& slot = slot_of(b);
  check(!slot.open, "bucket '{}' is needed while '{}', which uses the same memory, is in use",
        bucket(b).name, slot.bucket < 0 ? "" : bucket(slot.bucket).name);
  mark("gather " + bucket(b).name);
  slot.bucket = b;
  slot.generation = generations_[b];
  slot.capture = current_capture();
  const Stream& stream = communication_stream();
  stream.wait(slot.released);
  stream.wait(changed_[b]);
  if (direction == Direction::backward && resources_.reshard_exchange != nullptr) {
    queue_copies(copies_back(b, slot.buffer));
    resources_.reshard_exchange->gather(bucket(b), slot.buffer, stream);
  } else {
    own_values_.fill_own_part(b, slot.buffer);
    resources_.exchange->gather(bucket(b), slot.buffer, stream);
  }
  slot.ready = stream.record();
}

Copies GatheredParameters::copies_out(int b, const Tensor& buffer) const {
  Copies copies = copies_back(b, buffer);
  for (Copy& copy : copies) std::swap(copy.to, copy.from);
  return copies;
}

Copies GatheredParameters::copies_back(int b, const Tensor& buffer) const {
  const int ranks = resources_.group.placement.reshard_ranks;
  const int position = resources_.group.reshard_group_of(resources_.shard).position;
  const Tensors places = parts_of(bucket(b), buffer, ranks, position, Segments::all);
  Copies copies;
  for (std::size_t i = 0; i < places.size(); ++i) copies.push_back({places[i], kept_[b][i]});
  return copies;
}

}  // namespace tessera
