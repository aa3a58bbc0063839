#include "sharding/strategy/gradient_buckets.h"

#include <algorithm>

#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"

namespace tessera {

GradientBuckets::GradientBuckets(const GroupResources& resources, GradientSums& sums)
    : resources_(resources), sums_(sums), states_(resources.buckets().size()) {
  const GroupPlan& group = resources.group;
  const bool sends_narrow = group.placement.reduce_dtype != resources.gradient_dtype();
  const bool own_buffers = has_own_buffer(group.gradients);
  std::vector<std::int64_t> elements;
  for (const BucketLayout& bucket : resources.buckets()) {
    elements.push_back(written() * bucket.trainable_elements);
  }
  {
    const CategoryScope category(own_buffers ? Category::gradients : Category::communication);
    for (const std::int64_t size : group.gradient_slots.sizes(elements)) {
      buffers_.push_back({.data = sends_narrow
                                      ? Tensor::zeros({size}, resources.gradient_dtype())
                                      : resources.buffer(size, resources.gradient_dtype())});
    }
  }
  if (sends_narrow) {
    const CategoryScope category(Category::communication);
    const std::int64_t largest = *std::max_element(elements.begin(), elements.end());
    narrow_ = resources.buffer(largest, group.placement.reduce_dtype);
  }
  for (int b = 0; b < group.bucket_count(); ++b) {
    make_gradients(b);
    if (own_buffers) open(b);
  }
}

void GradientBuckets::make_gradients(int b) {
  const bool in_place = resources_.group.gradients == GradientCase::reduce_in_place;
  const Tensors places = own_places(b);
  for (int p = 0; p < bucket(b).trained_count; ++p) {
    sums_.make(b, p, in_place ? places[p] : Tensor());
  }
}

GradientBuckets::~GradientBuckets() {
  for (const BucketLayout& bucket : resources_.buckets()) {
    for (const Parameter& parameter : bucket.parameters) parameter.close_gradient();
  }
}

void GradientBuckets::start_step() {
  micro_batch_ = 0;
  for (int b = 0; b < resources_.group.bucket_count(); ++b) {
    close(b);
    states_[b] = {};
  }
}

void GradientBuckets::open(int b) {
  State& state = states_[b];
  Buffer& buffer = buffer_of(b);
  if (state.open || bucket(b).trainable_elements == 0) return;
  check(buffer.bucket < 0,
        "gradients of bucket '{}' are written while those of '{}' are incomplete; run the backward "
        "pass of one loss before the forward pass of the next",
        bucket(b).name, bucket(std::max(0, buffer.bucket)).name);
  wait_for_communication(buffer.released);
  mark("open gradients " + bucket(b).name);
  buffer.bucket = b;
  for (int p = 0; p < bucket(b).trained_count; ++p) {
    bucket(b).parameters[p].open_gradients(windows_of(bucket(b), p, buffer.data, written()));
  }
  state.open = true;
}

void GradientBuckets::close(int b) {
  if (states_[b].open) buffer_of(b).bucket = -1;
  states_[b].open = false;
  for (const Parameter& parameter : bucket(b).parameters) {
    if (!has_own_buffer(resources_.group.gradients)) parameter.close_gradient();
    parameter.reset_gradient();  // the next contribution belongs to another micro-batch
  }
}

void GradientBuckets::complete(int b) {
  states_[b].completed = true;
  if (bucket(b).trainable_elements == 0) return;
  if (reduces_once(resources_.group.gradients) && !last_micro_batch()) return;
  for (int p = 0; p < bucket(b).trained_count; ++p) {
    const Parameter& parameter = bucket(b).parameters[p];
    if (parameter.has_gradient()) continue;
    for (const Tensor& gradient : parameter.gradients()) gradient.zero();
  }
  if (!resources_.exchange && reduces_once(resources_.group.gradients)) return sums_.complete(b);
  close(b);
  reduce(b);
}

void GradientBuckets::reduce(int b) {
  mark("reduce " + bucket(b).name);
  const Stream& stream = communication_stream();
  stream.wait(context().compute_stream().record());
  in_reduce_dtype(b, written(), [&](const Tensor& all) {
    const Tensor sent = queue_sum_of(written(), all);
    resources_.exchange->reduce(bucket(b), sent, stream);
    if (!resources_.group.sums_replicas_once) {
      resources_.exchange->sum_replicas(bucket(b), sent, stream);
    }
  });
  if (resources_.group.gradients != GradientCase::reduce_in_place) accumulate(b);
  if (last_micro_batch()) {
    if (resources_.group.sums_replicas_once) sum_replicas(b);
    sums_.complete(b);
  }
  buffer_of(b).released = stream.record();
}

template <typename ExchangeCall>
void GradientBuckets::in_reduce_dtype(int b, int written, const ExchangeCall& exchange) {
  if (resources_.exchange == nullptr) return;  // strategy single sends nothing
  const std::int64_t elements = bucket(b).trainable_elements;
  const Tensor whole = buffer_of(b).data.slice(0, written * elements);
  if (!narrow_.defined()) return exchange(whole);
  const Tensor sent = narrow_.slice(0, written * elements);
  queue_copies({{.to = sent, .from = whole}});
  exchange(sent);
  queue_copies({{.to = whole.slice(0, elements), .from = sent.slice(0, elements)}});
}

void GradientBuckets::accumulate(int b) {
  const Tensors reduced = own_places(b);
  if (partial_sums_.keep(b, micro_batch_, reduced)) return;
  sums_.add(b, reduced, /*first=*/!states_[b].has_sum);
  states_[b].has_sum = true;
}

void GradientBuckets::sum_replicas(int b) {
  const Tensors places = own_places(b);
  queue_accumulation(places, sums_.of(b), /*first=*/true);
  in_reduce_dtype(b, 1, [&](const Tensor& sent) {
    resources_.exchange->sum_replicas(bucket(b), sent, communication_stream());
  });
  sums_.add(b, places, /*first=*/true);
}

Tensors GradientBuckets::own_places(int b) {
  Tensors places;
  for (int p = 0; p < bucket(b).trained_count; ++p) {
    places.push_back(resources_.own_place(b, p, buffer_of(b).data));
  }
  return places;
}

void GradientBuckets::finish_micro_batch() {
  for (int b = resources_.group.bucket_count() - 1; b >= 0; --b) {
    if (states_[b].completed) continue;
    open(b);
    complete(b);
  }
  for (State& state : states_) state.completed = false;
  ++micro_batch_;
}

}  // namespace tessera
