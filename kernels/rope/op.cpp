#include "kernels/rope/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_heads(std::string_view op, const Heads& x) {
  check(x.offset >= 0 && x.batch >= 0 && x.tokens >= 0 && x.heads >= 1 && x.head_size >= 2 &&
            x.head_size % 2 == 0,
        "{}: x has {} x {} tokens with {} heads of {} channels at offset {}; no number may be "
        "negative, there must be a head, and its channels must be even in number",
        op, x.batch, x.tokens, x.heads, x.head_size, x.offset);
  if (x.batch == 0 || x.tokens == 0) return;
  // x is rotated in place, so no element may belong to two heads.
  const std::int64_t channels = x.heads * x.head_size;
  check(
      (x.tokens == 1 || x.token_stride >= channels) &&
          (x.batch == 1 || x.batch_stride >= (x.tokens - 1) * x.token_stride + channels),
      "{}: x has tokens of {} channels at stride {} and batch elements of {} tokens at stride {}; "
      "they must not overlap",
      op, channels, x.token_stride, x.tokens, x.batch_stride);
  const std::int64_t end =
      x.offset + (x.batch - 1) * x.batch_stride + (x.tokens - 1) * x.token_stride + channels;
  check(end <= x.tensor.numel(), "{}: x ends at element {}, outside its tensor {}", op, end,
        describe(x.tensor));
}

void check_table(std::string_view op, const RopeTable& table, const Heads& x) {
  const DType dtype = statistics_dtype(x.tensor.dtype());
  for (const Argument& half : {Argument{"cosine", table.cosine}, {"sine", table.sine}}) {
    check_dtype(op, half, dtype);
    check_rank(op, half, 2);
    check_shape(op, half, {table.cosine.size(0), x.head_size / 2});
    check_apart(op, {"x", x.tensor}, half);
  }
}

void check_positions(std::string_view op, const RopePositions& positions, const Heads& x,
                     const RopeTable& table) {
  check(positions.first >= 0, "{}: the first position is {}; it must be at least 0", op,
        positions.first);
  if (!positions.each.defined()) {
    check(positions.first + x.tokens <= table.cosine.size(0),
          "{}: {} tokens from position {} on are too many for a table of {} positions", op,
          x.tokens, positions.first, table.cosine.size(0));
    return;
  }
  const Argument each{"positions", positions.each};
  check_on_one_device(op, {{"x", x.tensor}, each});
  check_dtype(op, each, DType::i32);
  check_shape(op, each, {x.batch, x.tokens});
  check_apart(op, {"x", x.tensor}, each);
}

void rope(std::string_view op, const Heads& x, const RopeTable& table,
          const RopePositions& positions, RopeDirection direction) {
  check_rotary(op, x, {table, positions});
  run_on<cpu::rope, cuda::rope>(x.tensor.device(), op, x, table, positions, direction);
}

}  // namespace

void rope_forward(const Heads& x, const RopeTable& table, const RopePositions& positions) {
  rope("rope_forward", x, table, positions, RopeDirection::forward);
}

void rope_backward(const Heads& dx, const RopeTable& table, const RopePositions& positions) {
  rope("rope_backward", dx, table, positions, RopeDirection::backward);
}

void rope_backward(const Heads& dq, const Heads& dk, const Rotary& rotary) {
  const bool neighbours = dq.tensor.raw() == dk.tensor.raw() &&
                          dk.offset == dq.offset + dq.heads * dq.head_size &&
                          dq.token_stride == dk.token_stride && dq.batch_stride == dk.batch_stride;
  Heads first = dq;
  if (neighbours) first.heads += dk.heads;
  rope_backward(first, rotary.table, rotary.positions);
  if (!neighbours) rope_backward(dk, rotary.table, rotary.positions);
}

void check_rotary(std::string_view op, const Heads& x, const Rotary& rotary) {
  const RopeTable& table = rotary.table;
  check_on_one_device(op, {{"x", x.tensor}, {"cosine", table.cosine}, {"sine", table.sine}});
  check_floating(op, {"x", x.tensor});
  check_heads(op, x);
  check_table(op, table, x);
  check_positions(op, rotary.positions, x, table);
}

}  // namespace tessera
