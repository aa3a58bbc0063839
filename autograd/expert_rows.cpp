#include "autograd/expert_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/activations.h"
#include "kernels/dispatch/op.h"
#include "kernels/embedding/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/stream_log.h"

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

/// The place of each arrived row among the rows sorted by (expert, source, token), from the offsets
/// [R, n + 1] of the sources, and the ends of the experts' rows.
void append_sorted(Counts& places, Counts& offsets, const Counts& received, std::int64_t ranks,
                   std::int64_t n) {
  const auto begin_of = [&](std::int64_t r, std::int64_t e) { return received[r * (n + 1) + e]; };
  std::vector<std::int32_t> next(static_cast<std::size_t>(ranks * n));
  for (std::int64_t e = 0; e < n; ++e) {
    std::int32_t end = offsets.back();
    for (std::int64_t r = 0; r < ranks; ++r) {
      next[r * n + e] = end;
      end += begin_of(r, e + 1) - begin_of(r, e);
    }
    offsets.push_back(end);
  }
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (std::int64_t e = 0; e < n; ++e) {
      for (std::int32_t i = begin_of(r, e); i < begin_of(r, e + 1); ++i) {
        places.push_back(next[r * n + e]++);
      }
    }
  }
}

}  // namespace

std::vector<ExpertRows> ExpertRows::of_pieces(const std::vector<DispatchOrder>& pieces,
                                              const std::shared_ptr<ExpertExchange>& exchange) {
  std::vector<ExpertRows> ways;
  if (exchange == nullptr) {
    for (const DispatchOrder& piece : pieces) ways.push_back(ExpertRows(piece.offsets));
    return ways;
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
  const std::int64_t ranks = exchange->ranks();
  const std::int64_t n = (pieces.front().offsets.numel() - 1) / ranks;
  // Each rank gets the offsets of its experts: where each begins, and where the last one ends.
  const Tensor sent = activation({ranks, count, n + 1}, DType::i32);
  for (std::int64_t r = 0; r < ranks; ++r) {
    const Tensor to_rank = sent.slice(r, r + 1).reshape({count, n + 1});
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor& offsets = pieces[static_cast<std::size_t>(i)].offsets;
      to_rank.slice(i, i + 1).reshape({n + 1}).copy_from(offsets.slice(r * n, (r + 1) * n + 1));
    }
  }
  const Counts swapped = exchange->swap(sent);
  for (std::int64_t i = 0; i < count; ++i) {
    const DispatchOrder& piece = pieces[static_cast<std::size_t>(i)];
    Counts own = piece.offsets.to_vector<std::int32_t>(), received;
    const std::int64_t first = exchange->rank() * n;
    if (context().is_dry()) own = assumed_offsets(piece.places.shape(), ranks * n, first, n);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const auto from =
          context().is_dry() ? own.begin() + first : swapped.begin() + (r * count + i) * (n + 1);
      for (std::int64_t e = 0; e <= n; ++e) received.push_back(from[e] - from[0]);
    }
    ways.push_back(ExpertRows(exchange, own, received));
  }
  return ways;
}

ExpertRows::ExpertRows(std::shared_ptr<ExpertExchange> exchange, const Counts& own,
                       const Counts& received)
    : exchange_(std::move(exchange)) {
  const std::int64_t ranks = exchange_->ranks();
  const std::int64_t n = std::ssize(received) / ranks - 1;
  for (std::int64_t r = 0; r < ranks; ++r) {
    sent_rows_.push_back(own[(r + 1) * n] - own[r * n]);
    received_rows_.push_back(received[r * (n + 1) + n]);
  }
  const std::int64_t rows = sum(received_rows_);
  check(rows <= INT32_MAX, "the experts of one rank got {} rows; at most {} are possible", rows,
        INT32_MAX);
  Counts groups = {0}, places;
  if (sorts_again()) {
    append_sorted(places, groups, received, ranks, n);
    offsets_ = on_device(groups, {n + 1});
    offsets_of_ = {offsets_};
  } else {
    for (std::int64_t r = 0; r < ranks; ++r) {
      const std::int32_t before = groups.back();
      for (std::int64_t e = 1; e <= n; ++e) groups.push_back(before + received[r * (n + 1) + e]);
    }
    offsets_ = on_device(groups, {ranks * n + 1});
    const Tensor all = on_device(received, {ranks, n + 1});
    for (std::int64_t r = 0; r < ranks; ++r) {
      offsets_of_.push_back(all.slice(r, r + 1).reshape({n + 1}));
    }
    places.resize(static_cast<std::size_t>(rows));
    std::iota(places.begin(), places.end(), 0);
  }
  places_ = on_device(places, {rows, 1});
}

Journey ExpertRows::to_experts(const Tensor& rows) const {
  if (!travel()) return {rows};
  const Tensor received = activation({sum(received_rows_), rows.size(1)}, rows.dtype());
  return {received, exchange_->move(received, received_rows_, rows, sent_rows_)};
}

Journey ExpertRows::to_tokens(const Tensor& rows) const {
  if (!travel()) return {rows};
  const Tensor received = activation({sum(sent_rows_), rows.size(1)}, rows.dtype());
  return {received, exchange_->move(received, sent_rows_, rows, received_rows_)};
}

Tensor ExpertRows::arrived(Journey journey) const {
  if (journey.arrival) exchange_->wait(*journey.arrival);
  return std::move(journey.rows);
}

bool ExpertRows::sorts_again() const {
  return travel() && exchange_->choices().sums == ExpertSums::fast;
}

Tensor ExpertRows::by_group(const Tensor& arrived) const {
  if (!sorts_again()) return arrived;
  const Tensor rows = like(arrived);
  dispatch(rows, arrived, places_);
  log_memory(2.0 * static_cast<double>(rows.bytes()));
  return rows;
}

Tensor ExpertRows::by_arrival(const Tensor& rows) const {
  if (!sorts_again()) return rows;
  const Tensor arrived = like(rows);
  embedding_forward(arrived, rows, places_.reshape({places_.numel()}));
  log_memory(2.0 * static_cast<double>(rows.bytes()));
  return arrived;
}

Tensor ExpertRows::rows_of(const Tensor& rows, int sum) const {
  if (sums() == 1) return rows;
  const auto first = received_rows_.begin();
  const std::int64_t begin = std::accumulate(first, first + sum, std::int64_t{0});
  return rows.slice(begin, begin + first[sum]);
}

}  // namespace tessera
