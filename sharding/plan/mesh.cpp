#include "sharding/plan/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/check.h"

namespace tessera {
namespace {

bool contains(const Axes& names, const Axis& axis) {
  return std::find(names.begin(), names.end(), axis.name) != names.end();
}

/// The coordinates of `rank` along some of the axes, as one number: the last of them counts ones.
int number_of(const Mesh& mesh, int rank, const std::vector<bool>& counted) {
  int number = 0;
  int factor = 1;
  for (std::size_t i = mesh.axes.size(); i-- > 0;) {
    const int size = mesh.axes[i].size;
    if (counted[i]) {
      number += rank % size * factor;
      factor *= size;
    }
    rank /= size;
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
    check(axis != axes.end(), "the mesh {} has no axis '{}'", to_string(*this), name);
    ranks *= axis->size;
  }
  return ranks;
}

int Mesh::position_along(int rank, const Axes& along) const {
  std::vector<bool> counted;
  for (const Axis& axis : axes) counted.push_back(contains(along, axis));
  return number_of(*this, rank, counted);
}

int Mesh::group_along(int rank, const Axes& along) const {
  std::vector<bool> counted;
  for (const Axis& axis : axes) counted.push_back(!contains(along, axis));
  return number_of(*this, rank, counted);
}

std::string to_string(const Mesh& mesh) {
  std::vector<std::string> parts;
  for (const Axis& axis : mesh.axes) parts.push_back(fmt::format("{} {}", axis.name, axis.size));
  return fmt::format("{}", fmt::join(parts, " x "));
}

}  // namespace tessera
