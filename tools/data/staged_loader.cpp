#include "tools/data/staged_loader.h"

#include <utility>

namespace tessera {

void StagedLoader::stage(std::int64_t batch, std::int64_t first_row, std::int64_t rows) {
  staged_ = Staged{.place = {.batch = batch, .first_row = first_row, .rows = rows},
                   .rows = loader_.load(batch, first_row, rows, sizes_)};
}

Batch StagedLoader::load(std::int64_t batch, std::int64_t first_row, std::int64_t rows) {
  const std::optional<Staged> staged = std::exchange(staged_, {});
  const Place place = {.batch = batch, .first_row = first_row, .rows = rows};
  if (staged && staged->place == place) return staged->rows;
  return loader_.load(batch, first_row, rows, sizes_);
}

std::int64_t StagedLoader::loss_terms(std::int64_t batch, std::int64_t first_row,
                                      std::int64_t rows) const {
  return loader_.loss_terms(batch, first_row, rows, sizes_);
}

}  // namespace tessera
