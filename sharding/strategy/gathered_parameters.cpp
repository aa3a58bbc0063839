// Parameters that are whole only while they are needed: ZeRO-3, FSDP, HSDP.
//
// A bucket is gathered into the slot that the schedule gives it (sharding/plan/schedule.h). The slot
// then holds it until another bucket takes the slot or the weights change, so a bucket that is
// needed again soon, as the last ones of a forward pass are, is not gathered again. Windows are
// open only between open() and close(): use of a parameter outside is an error, even if the slot
// still holds it.
//
// Three kinds of events keep streams in order:
//   ready      the gather into the slot has ended: computation may read      (open waits)
//   released   computation has stopped reading: the slot may be overwritten  (gather waits)
//   changed    the masters hold new values: they may be read                 (gather waits)
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/strategy/offload.h"

namespace tessera {
namespace {

class GatheredParameters final : public ParameterStore {
 public:
  explicit GatheredParameters(const BucketResources& resources)
      : resources_(resources),
        assignment_(Slots::assign(buckets(), turns(resources.options))),
        host_values_(resources) {
    const CategoryScope category(Category::communication);
    std::vector<std::int64_t> elements;
    for (const BucketLayout& bucket : buckets()) elements.push_back(bucket.elements);
    for (const std::int64_t size : assignment_.sizes(elements)) {
      slots_.push_back({.buffer = Tensor::zeros({size}, resources.options.compute_dtype)});
    }
    if (resources.group_exchange == nullptr) return;
    for (const BucketLayout& bucket : buckets()) {
      std::int64_t size = 0;
      for (const Segment& segment : bucket.segments) {
        size += segment.range.count / resources.options.reshard_group;
      }
      kept_.push_back(Tensor::zeros({size}, resources.options.compute_dtype));
    }
  }

  ~GatheredParameters() override {
    for (const BucketLayout& bucket : buckets()) {
      for (const Parameter& parameter : bucket.parameters) parameter.close();
    }
  }

  Tensor make_master(int, int, const Range& range) override {
    if (resources_.options.offload == Offload::optimizer) {
      const CategoryScope category(Category::parameters);
      device_values_.push_back(Tensor::empty({range.count}, resources_.options.compute_dtype));
    }
    return make_separate_master(resources_.options, range.count);
  }

  void prefetch(int bucket, Pass pass) override {
    const Slot& slot = slot_of(bucket);
    if (slot.open || holds(slot, bucket)) return;
    gather(bucket, pass);
  }

  void open(int b, Pass pass) override {
    Slot& slot = slot_of(b);
    if (!holds(slot, b)) gather(b, pass);
    if (slot.open) return;
    slot.open = true;
    wait_for_communication(slot.ready);
    const BucketLayout& bucket = buckets()[b];
    mark("open " + bucket.name);
    for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
      bucket.parameters[p].open(window_of(bucket, static_cast<int>(p), slot.buffer));
    }
  }

  void close(int b, bool again_in_backward) override {
    Slot& slot = slot_of(b);
    if (!slot.open) return;
    for (const Parameter& parameter : buckets()[b].parameters) parameter.close();
    slot.open = false;
    mark("close " + buckets()[b].name);
    slot.released = context().compute_stream().record();
    if (again_in_backward && resources_.group_exchange != nullptr) {
      communication_stream().wait(slot.released);
      queue_copies(kept_parts(b, slot.buffer, /*out=*/true));
    }
  }

  void weights_changed() override {
    ++generation_;
    changed_ = context().compute_stream().record();
    if (!offloads(resources_.options)) return;
    host_values_.refresh();
    if (resources_.options.offload == Offload::all) return;  // gathers copy what they need
    for (int b = 0; b < static_cast<int>(buckets().size()); ++b) {
      Copies copies;
      for (int p = 0; p < static_cast<int>(buckets()[b].parameters.size()); ++p) {
        copies.emplace_back(device_value(b, p), host_values_.of(b, p));
      }
      queue_copies(std::move(copies));
    }
  }

 private:
  struct Slot {
    Tensor buffer;
    int bucket = -1;
    std::uint64_t generation = 0;  // of the weights it holds
    bool open = false;
    Event ready;
    Event released;
  };

  /// Inner buckets share so many slots; 0: none shares, for buckets that stay whole.
  static int turns(const ShardingOptions& options) {
    return options.reshard_group == 1 ? 0 : options.live_gathers;
  }

  const std::vector<BucketLayout>& buckets() const { return resources_.partition.buckets(); }
  Slot& slot_of(int bucket) { return slots_[assignment_.of_bucket[bucket]]; }
  bool holds(const Slot& slot, int bucket) const {
    return slot.bucket == bucket && slot.generation == generation_;
  }

  void gather(int b, Pass pass) {
    Slot& slot = slot_of(b);
    const BucketLayout& bucket = buckets()[b];
    check(!slot.open, "bucket '{}' is needed while '{}', which uses the same memory, is in use",
          bucket.name, slot.bucket < 0 ? "" : buckets()[slot.bucket].name);
    mark("gather " + bucket.name);
    slot.bucket = b;
    slot.generation = generation_;
    const Stream& stream = communication_stream();
    stream.wait(slot.released);
    stream.wait(changed_);
    if (pass == Pass::backward && resources_.group_exchange != nullptr) {
      queue_copies(kept_parts(b, slot.buffer, /*out=*/false));
      resources_.group_exchange->gather(bucket, slot.buffer, stream);
    } else {
      queue_copies(own_parts(b, slot.buffer));
      resources_.exchange->gather(bucket, slot.buffer, stream);
    }
    slot.ready = stream.record();
  }

  /// Copies that outlive this object, should the stream run late: they hold their tensors.
  using Copies = std::vector<std::pair<Tensor, Tensor>>;  // to, from

  static void queue_copies(Copies copies) {
    communication_stream().enqueue([copies = std::move(copies)] {
      for (const auto& [to, from] : copies) copy_or_cast(to, from);
    });
  }

  const Tensor& device_value(int b, int p) const {
    return device_values_[resources_.first_shard(b) + p - resources_.shards.data()];
  }

  /// What this rank contributes of a parameter: its master, or copies of that.
  const Tensor& own_value(int b, int p) const {
    switch (resources_.options.offload) {
      case Offload::optimizer:
        return device_value(b, p);
      case Offload::all:
        return host_values_.of(b, p);
      default:
        return resources_.first_shard(b)[p].data;
    }
  }

  /// The own values go where this rank's part lies in the buffer, in the compute dtype.
  Copies own_parts(int b, const Tensor& buffer) const {
    const BucketLayout& bucket = buckets()[b];
    const Shard* shards = resources_.first_shard(b);
    Copies copies;
    for (int p = 0; p < static_cast<int>(bucket.parameters.size()); ++p) {
      const Range range{shards[p].first, shards[p].data.numel()};
      copies.emplace_back(place_of(bucket, p, range, buffer), own_value(b, p));
    }
    return copies;
  }

  /// This rank's part among its group, out of the buffer to where it is kept or back.
  Copies kept_parts(int b, const Tensor& buffer, bool out) const {
    Copies copies;
    std::int64_t begin = 0;
    for (const Segment& segment : buckets()[b].segments) {
      const Range part =
          part_of(segment, resources_.options.reshard_group, resources_.rank_in_group);
      const Tensor here = buffer.slice(part.first, part.end());
      const Tensor kept = kept_[b].slice(begin, begin + part.count);
      copies.emplace_back(out ? kept : here, out ? here : kept);
      begin += part.count;
    }
    return copies;
  }

  BucketResources resources_;
  Slots assignment_;
  std::vector<Slot> slots_;
  HostValues host_values_;
  /// With offloaded masters: the own values on the GPU, one per shard.
  std::vector<Tensor> device_values_;
  /// With groups: per bucket, this rank's part of it among its group.
  std::vector<Tensor> kept_;
  std::uint64_t generation_ = 1;
  Event changed_;
};

}  // namespace

std::unique_ptr<ParameterStore> make_gathered_parameters(const BucketResources& resources) {
  return std::make_unique<GatheredParameters>(resources);
}

}  // namespace tessera
