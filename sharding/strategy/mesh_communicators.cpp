#include "sharding/strategy/mesh_communicators.h"

#include "sharding/comm/stream.h"

namespace tessera {

Communicator& MeshCommunicators::along(const Axes& axes) {
  if (mesh_.size_along(axes) == world_->size()) return *world_;
  Communicator*& group = along_[axes];
  if (group == nullptr) group = &split(*world_, mesh_.group_along(world_->rank(), axes));
  return *group;
}

Communicator& MeshCommunicators::split(Communicator& group, int color) {
  owned_.push_back(group.split(color));
  return *owned_.back();
}

MeshCommunicators::~MeshCommunicators() {
  if (!owned_.empty()) communication_stream().enqueue([owned = owned_] {});
}

}  // namespace tessera
