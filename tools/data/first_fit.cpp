#include "tools/data/first_fit.h"

#include <algorithm>

namespace tessera {

std::int64_t FirstFit::place(std::int32_t tokens) {
  if (free_[1] < tokens) double_rows();
  std::size_t node = 1;
  while (node < leaves()) {
    node *= 2;
    if (free_[node] < tokens) ++node;
  }
  free_[node] -= tokens;
  update_above(node);
  const auto row = static_cast<std::int64_t>(node - leaves());
  rows_ = std::max(rows_, row + 1);
  return row;
}

void FirstFit::update_above(std::size_t node) {
  while (node /= 2) free_[node] = std::max(free_[2 * node], free_[2 * node + 1]);
}

void FirstFit::double_rows() {
  const std::vector<std::int32_t> rows(free_.begin() + static_cast<std::ptrdiff_t>(leaves()),
                                       free_.end());
  free_.assign(2 * free_.size(), row_length_);
  std::copy(rows.begin(), rows.end(), free_.begin() + static_cast<std::ptrdiff_t>(leaves()));
  for (std::size_t node = leaves(); --node > 0;) {
    free_[node] = std::max(free_[2 * node], free_[2 * node + 1]);
  }
}

}  // namespace tessera
