// Parameters that are whole on every rank at all times: single, DDP, ZeRO-1, ZeRO-2.
//
// In f32 the masters are windows into the whole buffers: an update is in place. In 16 bits the
// buffers are a rounded copy beside the masters. Where masters are slices (ZeRO-1 and 2), the
// slices are gathered after each update, bucket by bucket, hidden behind the next forward pass.
// Offloaded masters are copied up in the same way.
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/strategy/offload.h"

namespace tessera {
namespace {

class ResidentParameters final : public ParameterStore {
 public:
  explicit ResidentParameters(const BucketResources& resources)
      : resources_(resources), host_values_(resources) {
    const CategoryScope category(Category::parameters);
    for (const BucketLayout& bucket : resources.partition.buckets()) {
      Whole whole{Tensor::zeros({bucket.elements}, resources.options.compute_dtype), {}};
      for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
        bucket.parameters[p].open(window_of(bucket, static_cast<int>(p), whole.buffer));
      }
      wholes_.push_back(std::move(whole));
    }
  }

  ~ResidentParameters() override {
    for (const BucketLayout& bucket : resources_.partition.buckets()) {
      for (const Parameter& parameter : bucket.parameters) parameter.close();
    }
  }

  Tensor make_master(int bucket, int parameter, const Range& range) override {
    if (in_place()) {
      return place_of(resources_.partition.buckets()[bucket], parameter, range,
                      wholes_[bucket].buffer);
    }
    return make_separate_master(resources_.options, range.count);
  }

  void prefetch(int, Pass) override {}
  void open(int bucket, Pass) override { wait_for_communication(wholes_[bucket].gathered); }
  void close(int, bool) override {}

  void weights_changed() override {
    const bool offloaded = offloads(resources_.options);
    const bool slices = resources_.partition.layout() != Layout::whole;
    if (offloaded) {
      host_values_.refresh();
    } else if (!in_place()) {
      for (std::size_t b = 0; b < wholes_.size(); ++b) copy_masters(static_cast<int>(b));
    }
    if (!offloaded && !slices) return;
    const Stream& stream = communication_stream();
    stream.wait(context().compute_stream().record());
    for (std::size_t b = 0; b < wholes_.size(); ++b) {
      if (offloaded) {
        const StreamGuard on_this_stream(stream);
        copy_masters(static_cast<int>(b));
      }
      if (slices) {
        const BucketLayout& bucket = resources_.partition.buckets()[b];
        resources_.exchange->gather(bucket, wholes_[b].buffer, stream);
      }
      wholes_[b].gathered = stream.record();
    }
  }

 private:
  struct Whole {
    Tensor buffer;
    Event gathered;
  };

  bool in_place() const {
    return resources_.options.compute_dtype == DType::f32 && !offloads(resources_.options);
  }

  /// This rank's own values, rounded, to where they lie in the whole buffer.
  void copy_masters(int b) {
    const BucketLayout& bucket = resources_.partition.buckets()[b];
    const Shard* shards = resources_.first_shard(b);
    for (int p = 0; p < static_cast<int>(bucket.parameters.size()); ++p) {
      const Range range{shards[p].first, shards[p].data.numel()};
      const bool offloaded = offloads(resources_.options);
      copy_or_cast(place_of(bucket, p, range, wholes_[b].buffer),
                   offloaded ? host_values_.of(b, p) : shards[p].data);
    }
  }

  BucketResources resources_;
  HostValues host_values_;
  std::vector<Whole> wholes_;
};

}  // namespace

std::unique_ptr<ParameterStore> make_resident_parameters(const BucketResources& resources) {
  return std::make_unique<ResidentParameters>(resources);
}

}  // namespace tessera
