#include "sharding/strategy/gradient_buckets.h"

#include <algorithm>

#include "kernels/add/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {
namespace {

// One slot is written while the other is reduced.
constexpr int kTurns = 2;

}  // namespace

GradientBuckets::GradientBuckets(const BucketResources& resources, bool whole_gradients)
    : resources_(resources) {
  const ShardingOptions& options = resources.options;
  const bool several = options.micro_batches > 1;
  sum_first_ = several && !options.reduce_every_micro_batch;
  own_buffers_ = whole_gradients || sum_first_;
  in_place_ = whole_gradients && (sum_first_ || !several);
  assignment_ = Slots::assign(buckets(), own_buffers_ ? 0 : kTurns);
  states_.resize(buckets().size());
  sums_.resize(resources.shards.size());

  std::vector<std::int64_t> elements;
  for (const BucketLayout& bucket : buckets()) elements.push_back(bucket.trainable_elements);
  {
    const CategoryScope category(own_buffers_ ? Category::gradients : Category::communication);
    for (const std::int64_t size : assignment_.sizes(elements)) {
      buffers_.push_back({.data = Tensor::zeros({size}, DType::f32)});
    }
  }
  if (options.reduce_dtype != DType::f32) {
    const CategoryScope category(Category::communication);
    narrow_ =
        Tensor::zeros({*std::max_element(elements.begin(), elements.end())}, options.reduce_dtype);
  }
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    make_gradients(static_cast<int>(b));
    if (own_buffers_) open(static_cast<int>(b));
  }
  if (options.offload == Offload::all && several && !sum_first_) make_scratch();
}

void GradientBuckets::make_gradients(int b) {
  const CategoryScope category(Category::gradients);
  const Offload offload = resources_.options.offload;
  const BucketLayout& bucket = buckets()[b];
  Shard* shards = resources_.first_shard(b);
  for (int p = 0; p < static_cast<int>(bucket.parameters.size()); ++p) {
    if (!bucket.parameters[p].trainable()) continue;
    const Range range{shards[p].first, shards[p].data.numel()};
    const Shape& shape = shards[p].data.shape();
    Tensor& sum = sums_[shards + p - resources_.shards.data()];
    if (in_place_) {
      sum = place_of(bucket, p, range, buffers_[b].data).reshape(shape);
    } else if (offload != Offload::all) {
      sum = Tensor::zeros(shape, DType::f32);
    }
    if (offload == Offload::none) {
      shards[p].gradient = sum;
    } else {
      shards[p].gradient = Tensor::empty_on_host(shape, DType::f32);
      shards[p].gradient.zero();
    }
  }
}

void GradientBuckets::make_scratch() {
  std::int64_t largest = 0;
  for (const Shard& shard : resources_.shards) {
    if (shard.gradient.defined()) largest = std::max(largest, shard.gradient.numel());
  }
  const CategoryScope category(Category::communication);
  scratch_ = Tensor::empty({largest}, DType::f32);
}

GradientBuckets::~GradientBuckets() {
  for (const BucketLayout& bucket : buckets()) {
    for (const Parameter& parameter : bucket.parameters) parameter.close_gradient();
  }
}

void GradientBuckets::start_step() {
  micro_batch_ = 0;
  for (std::size_t b = 0; b < buckets().size(); ++b) {
    close(static_cast<int>(b));
    states_[b] = {};
  }
}

void GradientBuckets::open(int b) {
  State& state = states_[b];
  Buffer& buffer = buffer_of(b);
  const BucketLayout& bucket = buckets()[b];
  if (state.open || bucket.trainable_elements == 0) return;
  check(buffer.bucket < 0, "gradients of bucket '{}' come while those of '{}' are incomplete",
        bucket.name, buckets()[std::max(0, buffer.bucket)].name);
  wait_for_communication(buffer.released);
  mark("open gradients " + bucket.name);
  buffer.bucket = b;
  for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
    const Parameter& parameter = bucket.parameters[p];
    if (!parameter.trainable()) continue;
    parameter.open_gradient(window_of(bucket, static_cast<int>(p), buffer.data));
  }
  state.open = true;
}

void GradientBuckets::close(int b) {
  if (states_[b].open) buffer_of(b).bucket = -1;
  states_[b].open = false;
  for (const Parameter& parameter : buckets()[b].parameters) {
    if (!own_buffers_) parameter.close_gradient();
    parameter.reset_gradient();  // what comes next belongs to another micro-batch
  }
}

void GradientBuckets::complete(int b) {
  states_[b].completed = true;
  const BucketLayout& bucket = buckets()[b];
  if (bucket.trainable_elements == 0 || (sum_first_ && !last_micro_batch())) return;
  for (const Parameter& parameter : bucket.parameters) {
    if (parameter.trainable() && !parameter.has_gradient()) parameter.gradient().zero();
  }
  if (resources_.exchange == nullptr) {  // another micro-batch may simply add to it
    if (!last_micro_batch() || !offloads(resources_.options)) return;
    communication_stream().wait(context().compute_stream().record());
    return copy_to_host(b);
  }
  close(b);
  reduce(b);
  states_[b].landed = true;
}

void GradientBuckets::reduce(int b) {
  const BucketLayout& bucket = buckets()[b];
  Buffer& buffer = buffer_of(b);
  const Tensor whole = buffer.data.slice(0, bucket.trainable_elements);
  mark("reduce " + bucket.name);
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  if (narrow_.defined()) {
    const Tensor sent = narrow_.slice(0, bucket.trainable_elements);
    stream.enqueue([sent, whole] { copy_or_cast(sent, whole); });
    resources_.exchange->reduce(bucket, sent, stream);
    stream.enqueue([sent, whole] { copy_or_cast(whole, sent); });
  } else {
    resources_.exchange->reduce(bucket, whole, stream);
  }
  if (!in_place_) land(b);
  if (last_micro_batch()) copy_to_host(b);
  buffer.released = stream.record();
}

void GradientBuckets::land(int b) {
  const BucketLayout& bucket = buckets()[b];
  const Shard* shards = resources_.first_shard(b);
  for (std::size_t p = 0; p < bucket.parameters.size(); ++p) {
    const Tensor& gradient = shards[p].gradient;
    if (!gradient.defined() || gradient.numel() == 0) continue;
    const Range range{shards[p].first, gradient.numel()};
    const Tensor reduced =
        place_of(bucket, static_cast<int>(p), range, buffer_of(b).data).reshape(gradient.shape());
    const bool first = !states_[b].landed;
    const Tensor& sum = sum_of(b, static_cast<int>(p));
    if (!sum.defined()) {
      land_on_host(gradient, reduced, first);
      continue;
    }
    communication_stream().enqueue(
        [sum, reduced, first] { first ? sum.copy_from(reduced) : add(sum, sum, reduced); });
  }
}

void GradientBuckets::land_on_host(const Tensor& gradient, const Tensor& reduced, bool first) {
  const Stream& stream = communication_stream();
  if (first) return stream.enqueue([=] { gradient.copy_from(reduced); });
  const Tensor sum = scratch_.slice(0, gradient.numel()).reshape(gradient.shape());
  stream.enqueue([=] {
    sum.copy_from(gradient);
    add(sum, sum, reduced);
    gradient.copy_from(sum);
  });
}

void GradientBuckets::copy_to_host(int b) {
  if (resources_.options.offload != Offload::optimizer) return;
  const Shard* shards = resources_.first_shard(b);
  for (int p = 0; p < static_cast<int>(buckets()[b].parameters.size()); ++p) {
    if (!shards[p].gradient.defined()) continue;
    communication_stream().enqueue(
        [to = shards[p].gradient, from = sum_of(b, p)] { to.copy_from(from); });
  }
}

std::vector<Tensor> GradientBuckets::reduced() const {
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Tensor& gradient = resources_.shards[i].gradient;
    if (gradient.defined()) gradients.push_back(sums_[i].defined() ? sums_[i] : gradient);
  }
  return gradients;
}

void GradientBuckets::finish_micro_batch() {
  for (int b = static_cast<int>(buckets().size()) - 1; b >= 0; --b) {
    if (states_[b].completed) continue;
    open(b);
    complete(b);
  }
  const bool last = last_micro_batch();
  for (State& state : states_) state.completed = false;
  ++micro_batch_;
  if (last && (resources_.exchange != nullptr || offloads(resources_.options))) {
    wait_for_communication(communication_stream().record());
  }
}

}  // namespace tessera
