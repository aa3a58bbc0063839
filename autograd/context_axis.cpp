#include "autograd/context_axis.h"

#include <cstring>
#include <utility>

#include "autograd/activations.h"
#include "kernels/embedding/op.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/describe.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

struct CurrentAxis {
  std::shared_ptr<const ContextAxis> axis;
};

Tensor permuted(const Tensor& rows, const Tensor& order) {
  const std::int64_t count = order.numel();
  const Tensor table = rows.reshape({count, rows.numel() / count});
  const Tensor result = like(table);
  embedding_forward(result, table, order);
  return result;
}

}  // namespace

Tensor cut_rows(const Tensor& rows, const TokenCut& cut) {
  const std::int64_t pieces = cut.pieces_of_row();
  check(rows.rank() >= 2 && rows.size(1) % pieces == 0,
        "rows {} cannot be cut into {} pieces of tokens; their length must be a multiple of it",
        describe(rows), pieces);
  const std::int64_t batch = rows.size(0), tokens = rows.size(1) / pieces;
  const std::int64_t each = rows.rank() == 2 ? 1 : rows.size(2);
  const Tensor from = rows.reshape({batch * pieces, tokens * each});
  const bool on_host = rows.device().is_cpu();
  const Shape shape = rows.shape().with(0, cut.pieces() * batch).with(1, tokens);
  const Tensor result =
      on_host ? Tensor::empty_on_host(shape, rows.dtype()) : Tensor::empty(shape, rows.dtype());
  const auto for_each_piece = [&](const auto& copy) {
    for (std::int64_t j = 0; j < cut.pieces(); ++j) {
      for (std::int64_t b = 0; b < batch; ++b) copy(j * batch + b, b * pieces + cut.place_of(j));
    }
  };
  if (!on_host) {
    for_each_piece([&](std::int64_t to, std::int64_t at) {
      result.slice(to, to + 1).copy_from(from.slice(at, at + 1));
    });
    return result;
  }
  const auto bytes = static_cast<std::size_t>(tokens * each) * size_of(rows.dtype());
  on_one_thread([&] {
    for_each_piece([&](std::int64_t to, std::int64_t at) {
      std::memcpy(result.raw() + static_cast<std::size_t>(to) * bytes,
                  from.raw() + static_cast<std::size_t>(at) * bytes, bytes);
    });
  });
  return result;
}

Tensor ContextAxis::natural(const Tensor& by_ranks, std::int64_t batch) const {
  return permuted(by_ranks, order_of(batch).to_natural);
}

Tensor ContextAxis::by_ranks(const Tensor& natural, std::int64_t batch) const {
  return permuted(natural, order_of(batch).to_ranks);
}

const ContextAxis::Order& ContextAxis::order_of(std::int64_t batch) const {
  Order& order = orders_[batch];
  if (order.to_natural.defined()) return order;
  const std::int64_t pieces = cut_.pieces_of_row();
  std::vector<std::int32_t> to_natural(static_cast<std::size_t>(pieces * batch)), to_ranks;
  for (int r = 0; r < cut_.ranks; ++r) {
    for (std::int64_t j = 0; j < cut_.pieces(); ++j) {
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t natural = b * pieces + cut_.place_of(j, r);
        to_natural[static_cast<std::size_t>(natural)] = static_cast<std::int32_t>(to_ranks.size());
        to_ranks.push_back(static_cast<std::int32_t>(natural));
      }
    }
  }
  const CategoryScope category(Category::other);
  order = {Tensor::from(to_natural, {pieces * batch}), Tensor::from(to_ranks, {pieces * batch})};
  return order;
}

const std::shared_ptr<const ContextAxis>& context_axis() {
  return context().state<CurrentAxis>().axis;
}

std::int64_t token_leaves() {
  const std::shared_ptr<const ContextAxis>& axis = context_axis();
  return axis == nullptr ? 1 : axis->cut().leaves;
}

ContextAxisScope::ContextAxisScope(std::shared_ptr<const ContextAxis> axis)
    : previous_(std::exchange(context().state<CurrentAxis>().axis, std::move(axis))) {}

ContextAxisScope::~ContextAxisScope() {
  context().state<CurrentAxis>().axis = std::move(previous_);
}

}  // namespace tessera
