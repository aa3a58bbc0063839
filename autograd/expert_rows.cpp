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

/// Appends the ends of `groups` groups that take rows in turn, the rows [first, first + rows) of all.
void append_in_turn(Counts& offsets, std::int64_t first, std::int64_t rows, std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto before = [&](std::int64_t end) { return (end + groups - 1 - g) / groups; };
    const std::int64_t count = before(first + rows) - before(first);
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(count));
  }
}

/// The offsets [E + 1] of every rank's rows in a dry run, for the rank that holds the experts
/// [first, first + n). The rows are a piece's, which begins at the rank's row `first_row`.
Counts assumed_offsets(const Shape& places, std::int64_t first_row, std::int64_t experts,
                       std::int64_t first, std::int64_t n) {
  Counts offsets = {0};
  const std::int64_t rows = places.numel();
  switch (context().state<AssumedLoad>().kind) {
    case AssumedLoad::Kind::even:
      append_even(offsets, rows, experts);
      return offsets;
    case AssumedLoad::Kind::in_turn:
      append_in_turn(offsets, first_row, rows, experts);
      return offsets;
    case AssumedLoad::Kind::all_here:
      break;
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

/// The index of each place.
Counts reversed(const Counts& places) {
  Counts slots(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) slots[places[i]] = static_cast<std::int32_t>(i);
  return slots;
}

/// The copies of every rank's tokens in a dry run, for the rank that holds the experts [first, first + n). Only
/// their counts matter.
TokenCopies assumed_copies(const Shape& places, std::int64_t first_row, const Counts& offsets,
                           std::int64_t first, std::int64_t n) {
  const std::int64_t tokens = places[0], per_token = places[1], experts = std::ssize(offsets) - 1;
  const AssumedLoad::Kind kind = context().state<AssumedLoad>().kind;
  TokenCopies copies{.counts = std::vector<std::int64_t>(experts / n)};
  switch (kind) {
    case AssumedLoad::Kind::even:
      copies.counts.assign(experts / n, expected_copies(tokens, per_token, experts, n));
      break;
    case AssumedLoad::Kind::all_here:
      for (std::int64_t r = 0; r < experts / n; ++r) {
        const std::int64_t rows = offsets[(r + 1) * n] - offsets[r * n];
        copies.counts[r] = r * n == first ? tokens : std::min(rows, tokens);
      }
      break;
    case AssumedLoad::Kind::in_turn:
      for (std::int64_t token = 0; token < tokens; ++token) {
        std::vector<bool> taken(copies.counts.size(), false);
        for (std::int64_t slot = 0; slot < per_token; ++slot) {
          taken[(first_row + token * per_token + slot) % experts / n] = true;
        }
        for (std::size_t r = 0; r < taken.size(); ++r) copies.counts[r] += taken[r] ? 1 : 0;
      }
      break;
  }
  copies.tokens.resize(static_cast<std::size_t>(sum(copies.counts)));
  copies.of_rows.resize(static_cast<std::size_t>(places.numel()));
  return copies;
}

/// One piece's own offsets and copies, as the host knows them.
struct Known {
  Counts offsets;
  TokenCopies copies;
};

Known known_of(const DispatchOrder& order, std::int64_t first_row, int rank, std::int64_t n,
               bool copies) {
  Known known;
  const std::int64_t experts = order.offsets.numel() - 1;
  if (context().is_dry()) {
    const Shape& places = order.places.shape();
    known.offsets = assumed_offsets(places, first_row, experts, rank * n, n);
    if (copies) known.copies = assumed_copies(places, first_row, known.offsets, rank * n, n);
    return known;
  }
  known.offsets = order.offsets.to_vector<std::int32_t>();
  std::vector<std::int64_t> ends;
  for (std::int64_t e = n; e <= experts; e += n) ends.push_back(known.offsets[e]);
  if (copies) {
    known.copies = copies_of(order.places.to_vector<std::int32_t>(), order.places.size(1), ends);
  }
  return known;
}

}  // namespace

std::vector<ExpertRows> ExpertRows::of_pieces(const std::vector<DispatchOrder>& pieces,
                                              const std::shared_ptr<ExpertExchange>& exchange) {
  std::vector<ExpertRows> ways;
  if (exchange == nullptr) {
    for (const DispatchOrder& piece : pieces) ways.push_back(ExpertRows(piece));
    return ways;
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
  const std::int64_t ranks = exchange->ranks();
  const std::int64_t n = (pieces.front().offsets.numel() - 1) / ranks;
  const bool copies = exchange->choices().copies == ExpertCopies::each_rank;
  std::vector<Known> known;
  std::int64_t first_row = 0;
  for (const DispatchOrder& piece : pieces) {
    known.push_back(known_of(piece, first_row, exchange->rank(), n, copies));
    first_row += piece.places.numel();
  }
  // Each rank gets the offsets of its experts, where each begins and the last one ends, and the number of copies.
  const std::int64_t width = n + (copies ? 2 : 1);
  Counts sent;
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (const Known& one : known) {
      const auto first = one.offsets.begin() + r * n;
      sent.insert(sent.end(), first, first + n + 1);
      if (copies) sent.push_back(static_cast<std::int32_t>(one.copies.counts[r]));
    }
  }
  const Counts swapped = exchange->swap(on_device(sent, {ranks, count, width}));
  std::vector<Journey> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const Known& own = known[static_cast<std::size_t>(i)];
    Counts received;
    std::vector<std::int64_t> received_copies;
    for (std::int64_t r = 0; r < ranks; ++r) {
      // In a dry run all ranks send the same.
      const auto from = context().is_dry() ? sent.begin() + (exchange->rank() * count + i) * width
                                           : swapped.begin() + (r * count + i) * width;
      for (std::int64_t e = 0; e <= n; ++e) received.push_back(from[e] - from[0]);
      if (copies) received_copies.push_back(from[n + 1]);
    }
    ways.push_back(
        ExpertRows(exchange, pieces[static_cast<std::size_t>(i)], own.offsets, received));
    if (copies) numbers.push_back(ways.back().announce(own.copies, std::move(received_copies)));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ways[i].copy_of_ = ways[i].arrived(std::move(numbers[i]));
  }
  return ways;
}

ExpertRows::ExpertRows(std::shared_ptr<ExpertExchange> exchange, const DispatchOrder& order,
                       const Counts& own, const Counts& received)
    : exchange_(std::move(exchange)), order_(order) {
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
  if (order.slots.defined()) slots_ = on_device(reversed(places), {rows});
}

Journey ExpertRows::announce(const TokenCopies& copies, std::vector<std::int64_t> received) {
  const auto column = [](const Counts& values) {
    return on_device(values, {std::ssize(values), 1});
  };
  sent_copies_ = copies.counts;
  received_copies_ = std::move(received);
  copied_ = column(copies.tokens).reshape({std::ssize(copies.tokens)});
  return to_experts(column(copies.of_rows));
}

Journey ExpertRows::tokens_to_experts(const Tensor& tokens, const Tensor& weights) const {
  if (copied_.defined() && !weights.defined()) {
    const std::int64_t columns = tokens.size(1);
    const Tensor copies = activation({sum(sent_copies_), columns}, tokens.dtype());
    embedding_forward(copies, tokens, copied_);
    log_memory(2.0 * static_cast<double>(copies.bytes()));
    const Tensor received = activation({sum(received_copies_), columns}, tokens.dtype());
    return {.rows = received,
            .arrival = exchange_->move(received, received_copies_, copies, sent_copies_),
            .copies = true};
  }
  const Tensor rows = activation({order_.places.numel(), tokens.size(1)}, tokens.dtype());
  dispatch(rows, tokens, order_.places, weights);
  return to_experts(rows);
}

Tensor ExpertRows::at_experts(Journey journey) const {
  const bool copies = journey.copies;
  const Tensor rows = arrived(std::move(journey));
  return by_group(copies ? rows_of_copies(rows) : rows);
}

Tensor ExpertRows::rows_of_copies(const Tensor& copies) const {
  const Tensor rows = activation({sum(received_rows_), copies.size(1)}, copies.dtype());
  std::int64_t row = 0, copy = 0;
  for (std::size_t r = 0; r < received_rows_.size(); ++r) {
    const std::int64_t row_end = row + received_rows_[r], copy_end = copy + received_copies_[r];
    embedding_forward(rows.slice(row, row_end), copies.slice(copy, copy_end),
                      copy_of_.slice(row, row_end).reshape({row_end - row}));
    row = row_end, copy = copy_end;
  }
  log_memory(2.0 * static_cast<double>(rows.bytes()));
  return rows;
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

RoutedRows ExpertRows::rows_of(const RoutedRows& rows, int sum) const {
  if (sums() == 1) return rows;
  const auto first = received_rows_.begin();
  const std::int64_t begin = std::accumulate(first, first + sum, std::int64_t{0});
  return Factor(rows.values.values.slice(begin, begin + first[sum]));
}

}  // namespace tessera
