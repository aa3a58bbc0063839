#include "runtime/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tessera {
namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 == 0
}

std::size_t distance_between_names(std::string_view given, std::string_view candidate) {
  const std::size_t whole = edit_distance(given, candidate);
  const std::size_t moved = 1 + edit_distance(last_part(given), last_part(candidate));
  return std::min(whole, moved);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // row[j]: distance between the part of `a` read so far and the first j characters of `b`.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates) {
  std::optional<std::string> nearest;
  // A guess that differs in more than a third of the letters misleads more often than it helps.
  std::size_t best = std::max<std::size_t>(2, last_part(name).size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = distance_between_names(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tessera
