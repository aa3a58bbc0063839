// MeshCommunicators: a communicator for each group of ranks along axes of the mesh.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sharding/comm/communicator.h"
#include "sharding/plan/mesh.h"

namespace tessera {

class MeshCommunicators {
 public:
  /// `world` has the mesh's ranks and must outlive this object; null for strategy single, which
  /// asks for no communicator.
  MeshCommunicators(const Mesh& mesh, Communicator* world) : mesh_(mesh), world_(world) {}

  /// Calls that are still queued on the communication stream keep their communicators.
  ~MeshCommunicators();
  MeshCommunicators(const MeshCommunicators&) = delete;
  MeshCommunicators& operator=(const MeshCommunicators&) = delete;

  /// This rank's group along `axes`: all ranks, or a communicator that is split off on first use.
  /// A collective.
  Communicator& along(const Axes& axes);
  /// The ranks of `group` that have this rank's color. A collective.
  Communicator& split(Communicator& group, const std::function<int(int rank)>& color_of);

  /// The communicators that were split off.
  const std::vector<std::shared_ptr<Communicator>>& owned() const { return owned_; }

 private:
  const Mesh mesh_;
  Communicator* const world_;
  std::map<Axes, Communicator*> along_;
  std::vector<std::shared_ptr<Communicator>> owned_;
};

}  // namespace tessera
