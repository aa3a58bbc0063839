#include "autograd/expert_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/activations.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Tensor on_device(const std::vector<std::int32_t>& values, const Shape& shape) {
  const CategoryScope category(Category::activations);
  return Tensor::from(values, shape);
}

using Counts = std::vector<std::int32_t>;

/// Appends the ends of `groups` groups that share out `rows` rows. The first groups have one row more.
void append_even(Counts& offsets, std::int64_t rows, std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t count = rows / groups + (g < rows % groups ? 1 : 0);
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(count));
  }
}

/// The offsets [E + 1] of every rank's rows in a dry run, for the rank that holds the experts
/// [first, first + n).
Counts assumed_offsets(const Shape& places, std::int64_t experts, std::int64_t first,
                       std::int64_t n) {
  Counts offsets = {0};
  const std::int64_t rows = places.numel();
  if (context().state<AssumedLoad>().kind == AssumedLoad::Kind::even) {
    append_even(offsets, rows, experts);
    return offsets;
  }
  // A token takes an expert once.
  const std::int64_t here = places[0] * std::min(places[1], n);
  const std::int64_t before = (rows - here) * first / (experts - n);
  append_even(offsets, before, first);
  append_even(offsets, here, n);
  append_even(offsets, rows - here - before, experts - n - first);
  return offsets;
}

}  // namespace

ExpertRows::ExpertRows(const Tensor& offsets, const Tensor& places,
                       std::shared_ptr<ExpertExchange> exchange)
    : exchange_(std::move(exchange)) {
  if (!travel()) {
    offsets_ = offsets;
    offsets_of_ = {offsets};
    return;
  }
  const std::int64_t ranks = exchange_->ranks(), n = (offsets.numel() - 1) / ranks;
  // Each rank gets the offsets of its experts: where each begins, and where the last one ends.
  const Tensor sent = activation({ranks, n + 1}, DType::i32);
  for (std::int64_t r = 0; r < ranks; ++r) {
    sent.slice(r, r + 1).reshape({n + 1}).copy_from(offsets.slice(r * n, (r + 1) * n + 1));
  }
  Counts received = exchange_->swap(sent);
  Counts own = offsets.to_vector<std::int32_t>();
  if (context().is_dry()) {
    const std::int64_t first = exchange_->rank() * n;
    own = assumed_offsets(places.shape(), ranks * n, first, n);
    for (std::int64_t i = 0; i < std::ssize(received); ++i) received[i] = own[first + i % (n + 1)];
  }
  Counts of_groups = {0}, of_sources;
  for (std::int64_t r = 0; r < ranks; ++r) {
    sent_rows_.push_back(own[(r + 1) * n] - own[r * n]);
    const auto* const from = received.data() + r * (n + 1);
    const std::int32_t before = of_groups.back();
    for (std::int64_t e = 0; e <= n; ++e) of_sources.push_back(from[e] - from[0]);
    for (std::int64_t e = 1; e <= n; ++e) of_groups.push_back(before + from[e] - from[0]);
    received_rows_.push_back(of_sources.back());
  }
  const std::int64_t rows = sum(received_rows_);
  check(rows <= INT32_MAX, "the experts of one rank got {} rows; at most {} are possible", rows,
        INT32_MAX);
  offsets_ = on_device(of_groups, {ranks * n + 1});
  const Tensor all = on_device(of_sources, {ranks, n + 1});
  for (std::int64_t r = 0; r < ranks; ++r) {
    offsets_of_.push_back(all.slice(r, r + 1).reshape({n + 1}));
  }
  Counts places_here(static_cast<std::size_t>(rows));
  std::iota(places_here.begin(), places_here.end(), 0);
  places_ = on_device(places_here, {rows, 1});
}

Tensor ExpertRows::to_experts(const Tensor& rows) const {
  if (!travel()) return rows;
  const Tensor received = activation({sum(received_rows_), rows.size(1)}, rows.dtype());
  exchange_->move(received, received_rows_, rows, sent_rows_);
  return received;
}

Tensor ExpertRows::to_tokens(const Tensor& rows) const {
  if (!travel()) return rows;
  const Tensor received = activation({sum(sent_rows_), rows.size(1)}, rows.dtype());
  exchange_->move(received, sent_rows_, rows, received_rows_);
  return received;
}

Tensor ExpertRows::of_source(const Tensor& rows, int source) const {
  if (!travel()) return rows;
  const auto first = received_rows_.begin();
  const std::int64_t begin = std::accumulate(first, first + source, std::int64_t{0});
  return rows.slice(begin, begin + first[source]);
}

}  // namespace tessera
