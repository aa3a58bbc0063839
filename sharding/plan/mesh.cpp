#include "sharding/plan/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/check.h"

namespace tessera {
namespace {

bool contains(const Axes& names, const Axis& axis) {
  return std::find(names.begin(), names.end(), axis.name) != names.end();
}

/// The coordinates of `rank` along the axes of which `along` has the name, or of all others, as one number: the last
/// of them counts ones.
int number_of(const Mesh& mesh, int rank, const Axes& along, bool of_others) {
  int number = 0;
  int factor = 1;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
    if (contains(along, *axis) != of_others) {
      number += rank % axis->size * factor;
      factor *= axis->size;
    }
    rank /= axis->size;
  }
  return number;
}

}  // namespace

int Mesh::world_size() const {
  int ranks = 1;
  for (const Axis& axis : axes) ranks *= axis.size;
  return ranks;
}

bool Mesh::has(const std::string& axis) const {
  return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == axis; });
}

int Mesh::size_along(const Axes& along) const {
  int ranks = 1;
  for (const std::string& name : along) {
    const auto axis =
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == name; });
    if (axis == axes.end()) fail("the mesh {} has no axis '{}'", to_string(*this), name);
    ranks *= axis->size;
  }
  return ranks;
}

int Mesh::position_along(int rank, const Axes& along) const {
  return number_of(*this, rank, along, /*of_others=*/false);
}

int Mesh::group_along(int rank, const Axes& along) const {
  return number_of(*this, rank, along, /*of_others=*/true);
}

std::string to_string(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const Axis& axis : mesh.axes) parts.push_back(fmt::format("{} {}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, " x "));
}

}  // namespace tessera
