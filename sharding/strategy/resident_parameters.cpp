#include "sharding/strategy/resident_parameters.h"

#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/update_stream.h"
#include "sharding/comm/stream.h"

namespace tessera {

ResidentParameters::ResidentParameters(const GroupResources& resources, OwnValues& own_values)
    : resources_(resources), own_values_(own_values) {
  const CategoryScope category(Category::parameters);
  const DType dtype = resources.group.placement.window_dtype;
  for (const BucketLayout& bucket : resources.buckets()) {
    const Tensor buffer = resources.group.gathers_in_place()
                              ? resources.buffer(bucket.elements, dtype)
                              : Tensor::zeros({bucket.elements}, dtype);
    wholes_.push_back({.buffer = buffer, .updated = {}, .current = {}});
    for (int p = 0; p < bucket.parameter_count(); ++p) {
      bucket.parameters[p].open(window_of(bucket, p, wholes_.back().buffer));
    }
  }
}

ResidentParameters::~ResidentParameters() {
  for (const BucketLayout& bucket : resources_.buckets()) {
    for (const Parameter& parameter : bucket.parameters) parameter.close();
  }
}

std::pair<Tensor, Tensor> ResidentParameters::make_own(int b, int p) {
  const Parameter& parameter = resources_.parameter(b, p);
  const Tensor place = resources_.own_place(b, p, wholes_[b].buffer);
  if (resources_.group.lies_in_buffer(parameter)) return {place, {}};
  const DType dtype = resources_.group.own_dtype(parameter);
  const bool on_host = resources_.group.masters == Masters::on_host;
  return {own_values_.make(resources_.owned(b, p).count, dtype),
          on_host ? own_values_.copy_of(b, p) : place};
}

void ResidentParameters::open(int bucket, Direction) {
  wait_for_update(wholes_[bucket].updated);
  wait_for_communication(wholes_[bucket].current);
}

void ResidentParameters::masters_changed(int b, Writes writes, const Stream& writer) {
  const Masters masters = resources_.group.masters;
  const bool in_buffer = masters == Masters::in_buffer ||
                         (masters == Masters::separate && writes == Writes::masters_and_copies);
  const bool gathers = resources_.group.gathers_in_place();
  Whole& whole = wholes_[b];
  if (in_buffer && !gathers) {
    if (writer.name() == kUpdateStream) whole.updated = writer.record();
    return;
  }
  const Stream& stream = communication_stream();
  stream.wait(writer.record());
  if (!in_buffer) own_values_.fill_own_part(b, whole.buffer);
  if (gathers) resources_.exchange->gather(resources_.buckets()[b], whole.buffer, stream);
  whole.current = stream.record();
}

}  // namespace tessera
