#include "sharding/strategy/mesh_communicators.h"

#include "sharding/comm/stream.h"

namespace tessera {

Communicator& MeshCommunicators::along(const Axes& axes) {
  if (mesh_.size_along(axes) == world_->size()) return *world_;
  Communicator*& group = along_[axes];
  if (group == nullptr) {
    group = &split(*world_, [&](int rank) { return mesh_.group_along(rank, axes); });
  }
  return *group;
}

Communicator& MeshCommunicators::split(Communicator& group,
                                       const std::function<int(int)>& color_of) {
  owned_.push_back(group.split(color_of));
  return *owned_.back();
}

MeshCommunicators::~MeshCommunicators() {
  if (!owned_.empty()) communication_stream().enqueue([owned = owned_] {});
}

}  // namespace tessera
