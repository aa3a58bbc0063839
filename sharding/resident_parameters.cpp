// Parameters that are whole on every rank at all times: single, DDP, ZeRO-1, ZeRO-2.
//
// In f32 the masters are windows into the whole buffers: an update is in place. In 16 bits the
// buffers are a rounded copy beside the masters. Where masters are slices (ZeRO-1 and 2), the
// slices are gathered after each update, bucket by bucket, hidden behind the next forward pass.
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/parameter_store.h"

namespace tessera {
namespace {

class ResidentParameters final : public ParameterStore {
 public:
  explicit ResidentParameters(const BucketResources& resources) : resources_(resources) {
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
    const CategoryScope category(Category::parameters);
    return Tensor::empty({range.count}, DType::f32);
  }

  void prefetch(int, Pass) override {}
  void open(int bucket, Pass) override { wait_for_communication(wholes_[bucket].gathered); }
  void close(int, bool) override {}

  void weights_changed() override {
    for (std::size_t b = 0; b < wholes_.size(); ++b) {
      if (!in_place()) round_masters(static_cast<int>(b));
    }
    if (resources_.partition.layout() == Layout::whole) return;
    const Stream& stream = communication_stream();
    stream.wait(context().compute_stream().record());
    for (std::size_t b = 0; b < wholes_.size(); ++b) {
      const BucketLayout& bucket = resources_.partition.buckets()[b];
      resources_.exchange->gather(bucket, wholes_[b].buffer, stream);
      wholes_[b].gathered = stream.record();
    }
  }

 private:
  struct Whole {
    Tensor buffer;
    Event gathered;
  };

  bool in_place() const { return resources_.options.compute_dtype == DType::f32; }

  void round_masters(int b) {
    const BucketLayout& bucket = resources_.partition.buckets()[b];
    const Shard* shards = resources_.first_shard(b);
    for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
      const Range range{shards[p].first, shards[p].data.numel()};
      copy_or_cast(place_of(bucket, static_cast<int>(p), range, wholes_[b].buffer), shards[p].data);
    }
  }

  BucketResources resources_;
  std::vector<Whole> wholes_;
};

}  // namespace

std::unique_ptr<ParameterStore> make_resident_parameters(const BucketResources& resources) {
  return std::make_unique<ResidentParameters>(resources);
}

}  // namespace tessera
