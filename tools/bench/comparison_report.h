// The output of bench_strategies: tables, a verdict, JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "tools/bench/compare.h"

namespace tessera {

/// Rows of a comparison, and the figures of each.
struct Comparison {
  std::vector<Compared> rows;
  /// Sums over ranks were formed in an order of NCCL's: results are not compared.
  bool any_order = false;
  std::vector<RowFigures> figures;

  /// Whether each row agrees with the first one. Rows that compute otherwise need not.
  bool agrees() const;
};

/// The tables and the verdict.
void print(const Comparison& comparison);

/// The rows as a list; docs/seeing.md describes its entries.
nlohmann::ordered_json json_of(const Comparison& comparison);

}  // namespace tessera
