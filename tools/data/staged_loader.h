// StagedLoader: a TokenLoader that can load rows before they are asked for.
//
// A rank stages the first rows of the next batch while the device computes this one, so the device
// does not wait for them. It keeps one set of rows. load() hands them out once, and drops them if it
// is asked for others.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "tools/data/loader.h"

namespace tessera {

class StagedLoader {
 public:
  /// `loader` must outlive it.
  StagedLoader(const TokenLoader& loader, BatchSizes sizes)
      : loader_(loader), sizes_(std::move(sizes)) {}

  const BatchSizes& sizes() const { return sizes_; }

  /// Loads rows [first_row, first_row + rows) of batch `batch` now, for the next load().
  void stage(std::int64_t batch, std::int64_t first_row, std::int64_t rows);
  /// TokenLoader::load, or the staged rows if they are the same.
  Batch load(std::int64_t batch, std::int64_t first_row, std::int64_t rows);
  std::int64_t loss_terms(std::int64_t batch, std::int64_t first_row, std::int64_t rows) const;

 private:
  struct Place {
    std::int64_t batch, first_row, rows;
    bool operator==(const Place&) const = default;
  };
  struct Staged {
    Place place;
    Batch rows;
  };

  const TokenLoader& loader_;
  BatchSizes sizes_;
  std::optional<Staged> staged_;
};

}  // namespace tessera
