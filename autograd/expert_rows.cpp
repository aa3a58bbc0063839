#include "autograd/expert_rows.h"

#include <numeric>
#include <utility>

#include "autograd/activations.h"
#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Tensor on_device(const std::vector<std::int32_t>& values, const Shape& shape) {
  const CategoryScope category(Category::activations);
  return Tensor::from(values, shape);
}

}  // namespace

ExpertRows::ExpertRows(const Tensor& offsets, std::shared_ptr<ExpertExchange> exchange)
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
  const std::vector<std::int32_t> received = exchange_->swap(sent);
  const auto own = offsets.to_vector<std::int32_t>();
  std::vector<std::int32_t> of_groups = {0}, of_sources;
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
  std::vector<std::int32_t> places(static_cast<std::size_t>(rows));
  std::iota(places.begin(), places.end(), 0);
  places_ = on_device(places, {rows, 1});
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
