#include "examples/ladder/dense.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/attention/op.h"
#include "kernels/columns/op.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/embedding/op.h"
#include "kernels/matmul/op.h"
#include "kernels/reduce/op.h"
#include "kernels/rms_norm/op.h"
#include "kernels/tree_reduce/op.h"

namespace tessera::ladder {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr std::int64_t kPieceTokens = kTokens / kPieces;

/// Rows [first, first + shape's) of a weight with `rows` rows in all.
Weight make_weight(const std::string& name, std::int64_t rows, std::int64_t first,
                   const Shape& shape, const Initializer& initializer) {
  const Tensor value = zeros(shape.numel(), Category::parameters);
  const std::int64_t row = shape.numel() / shape[0];
  Parameter(name, {rows * row}, initializer).initialize(value, first * row, kSeed);
  return {name, value.reshape(shape), zeros(shape.numel(), Category::gradients).reshape(shape)};
}

Weight make_norm(const std::string& name) {
  return make_weight(name, kWidth, 0, {kWidth}, Initializer::ones());
}

/// Slices [first, last) of `rows` rows each.
Weight make_matrix(const std::string& name, int first, int last, std::int64_t rows,
                   std::int64_t columns) {
  return make_weight(name, kSlices, first, {last - first, rows, columns},
                     Initializer::normal(0.02));
}

DenseBlock make_block(const std::string& name, int first, int last) {
  const auto matrix = [&](const char* of, std::int64_t rows) {
    return make_matrix(name + of, first, last, rows, kWidth);
  };
  return {make_norm(name + "norm"),     matrix("qkv", 3 * kHeadSize),  matrix("out", kHeadSize),
          make_norm(name + "mlp_norm"), matrix("gate_up", 2 * kInner), matrix("down", kInner)};
}

/// The number in its row of the piece at this place of the tree's order.
std::int64_t piece_at(std::int64_t place) {
  return place % 2 == 0 ? place / 2 : kPieces - 1 - place / 2;
}

/// Rows of one piece.
Tensor rows_of(const Tensor& x, std::int64_t piece) {
  return as_rows(x.slice(piece, piece + 1));
}

/// Forms a gradient of the summands that `write` gives for each piece.
void sum_over_pieces(const Tensor& gradient, std::int64_t pieces,
                     const std::function<void(const Tensor& summand, std::int64_t piece)>& write) {
  std::vector<Tensor> summands;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    summands.push_back(activation(gradient.shape(), DType::f32));
    write(summands.back(), piece);
  }
  tree_reduce(gradient, summands, Reduction::sum);
}

/// The matrix of all slices, and the shape [pieces, R, columns] of a result.
Tensor matrix_of(const Weight& weight) {
  return as_rows(weight.value);
}
Shape with_channels(const Tensor& x, std::int64_t channels) {
  return {x.size(0), x.size(1), channels};
}

/// The sum over slices of x's columns of a slice times its rows of the weight.
Tensor sum_over_slices(const Tensor& x, const Weight& weight) {
  const std::int64_t slices = weight.value.size(0), depth = weight.value.size(1);
  const Tensor rows = as_rows(x);
  std::vector<Tensor> summands;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    const Tensor columns = activation({rows.size(0), depth}, DType::f32);
    copy_columns(columns, {rows, slice * depth, depth});
    summands.push_back(activation(with_channels(x, weight.value.size(2)), DType::f32));
    matmul(as_rows(summands.back()), columns, rows_of(weight.value, slice));
  }
  tree_reduce(summands.front(), summands, Reduction::sum);
  return summands.front();
}

/// x [pieces, R, channels] times the transposed matrix of all slices.
Tensor whole_product(const Tensor& x, const Weight& weight) {
  const Tensor matrix = matrix_of(weight);
  const Tensor y = activation(with_channels(x, matrix.size(0)), DType::f32);
  matmul(as_rows(y), as_rows(x), matrix, Transpose::no, Transpose::yes);
  return y;
}

/// The gradient of a weight, a^T b.
void weight_gradient(const Weight& weight, const Tensor& a, const Tensor& b) {
  sum_over_pieces(as_rows(weight.gradient), a.size(0), [&](const Tensor& summand, std::int64_t p) {
    matmul(summand, rows_of(a, p), rows_of(b, p), Transpose::yes, Transpose::no);
  });
}

/// Copies keys or values between the order of the tree, [kPieces, R, C], and that of tokens, [rows, kTokens, C].
void reorder(const Tensor& by_tree, const Tensor& by_token, bool to_tokens) {
  const std::int64_t rows = by_token.size(0), numbers = kPieceTokens * by_token.size(2);
  const Tensor tree = by_tree.reshape({kPieces * rows, numbers});
  const Tensor tokens = by_token.reshape({rows * kPieces, numbers});
  for (std::int64_t place = 0; place < kPieces; ++place) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t i = place * rows + row, j = row * kPieces + piece_at(place);
      const Tensor a = tree.slice(i, i + 1), b = tokens.slice(j, j + 1);
      (to_tokens ? b : a).copy_from(to_tokens ? a : b);
    }
  }
}

Tensor in_order_of_tokens(const Tensor& x) {
  const Tensor result = activation({x.size(1) / kPieceTokens, kTokens, x.size(2)}, DType::f32);
  reorder(x, result, /*to_tokens=*/true);
  return result;
}

/// The heads of a tensor [rows, tokens, C], or of its first `tokens` tokens.
Heads all_heads(const Tensor& x, std::int64_t tokens) {
  return heads_of(x, 0, x.size(2) / kHeadSize, kHeadSize, tokens);
}
/// The heads of a piece.
Heads heads_of_piece(const Tensor& x, std::int64_t piece) {
  return all_heads(
      x.slice(piece, piece + 1).reshape({x.size(1) / kPieceTokens, kPieceTokens, x.size(2)}),
      kPieceTokens);
}

const float kScale = 1.0f / std::sqrt(static_cast<float>(kHeadSize));

}  // namespace

DenseModel::DenseModel(int first, int last)
    : embedding(make_weight("embedding", kVocabulary, 0, {kVocabulary, kWidth},
                            Initializer::normal(0.02))),
      norm(make_norm("norm")),
      head(make_weight("head", 1, 0, {1, kVocabulary, kWidth}, Initializer::normal(0.02))) {
  for (std::int64_t block = 0; block < kBlocks; ++block) {
    blocks.push_back(make_block("blocks." + std::to_string(block) + ".", first, last));
  }
}

std::vector<ParameterShard> DenseModel::shards() const {
  std::vector<ParameterShard> shards;
  const auto add = [&](const Weight& weight) {
    shards.push_back({weight.name, weight.value, weight.gradient});
  };
  add(embedding);
  for (const DenseBlock& block : blocks) {
    for (const Weight* weight :
         {&block.norm, &block.qkv, &block.out, &block.mlp_norm, &block.gate_up, &block.down}) {
      add(*weight);
    }
  }
  add(norm);
  add(head);
  return shards;
}

std::vector<Tensor> DenseModel::sliced_gradients() const {
  std::vector<Tensor> gradients;
  for (const DenseBlock& block : blocks) {
    for (const Weight* weight : {&block.qkv, &block.out, &block.gate_up, &block.down}) {
      gradients.push_back(weight->gradient);
    }
  }
  return gradients;
}

std::vector<Tensor> DenseModel::whole_gradients() const {
  std::vector<Tensor> gradients = {embedding.gradient, norm.gradient, head.gradient};
  for (const DenseBlock& block : blocks) {
    gradients.push_back(block.norm.gradient);
    gradients.push_back(block.mlp_norm.gradient);
  }
  return gradients;
}

PieceTokens tokens_of(int step, int rows, int first, int last) {
  std::vector<std::int32_t> inputs, targets;
  for (int place = first; place < last; ++place) {
    for (int part = 0; part < rows; ++part) {
      const std::vector<std::int32_t> tokens = row(step, part);
      const auto begin = tokens.begin() + piece_at(place) * kPieceTokens;
      inputs.insert(inputs.end(), begin, begin + kPieceTokens);
      targets.insert(targets.end(), begin + 1, begin + 1 + kPieceTokens);
    }
  }
  const Shape shape = {last - first, rows * kPieceTokens};
  return {Tensor::from(inputs, shape), Tensor::from(targets, shape)};
}

Variable embed(const Tensor& ids, const Weight& table) {
  const Tensor y = activation(with_channels(ids, kWidth), DType::f32);
  embedding_forward(as_rows(y), table.value, ids.reshape({ids.numel()}));
  return differentiable(y, {}, /*uses_parameters=*/true, [ids, table](Tensor dy) -> Gradients {
    sum_over_pieces(table.gradient, dy.size(0), [&](const Tensor& summand, std::int64_t p) {
      embedding_backward(summand, rows_of(dy, p), ids.slice(p, p + 1).reshape({ids.size(1)}),
                         Accumulate::no);
    });
    return {};
  });
}

Variable norm(const Variable& x, const Weight& weight) {
  const Tensor y = like(x.data()), rstd = activation({x.shape()[0], x.shape()[1]}, DType::f32);
  const Tensor statistics = rstd.reshape({rstd.numel()});
  rms_norm_forward(as_rows(y), statistics, as_rows(x.data()), weight.value, kEpsilon);
  return differentiable(y, {x}, true, [x = x.data(), weight, rstd](Tensor dy) -> Gradients {
    const Tensor dx = like(x);
    sum_over_pieces(weight.gradient, x.size(0), [&](const Tensor& summand, std::int64_t p) {
      rms_norm_backward(rows_of(dx, p), summand, rows_of(dy, p), rows_of(x, p), weight.value,
                        rstd.slice(p, p + 1).reshape({rstd.size(1)}), Accumulate::no);
    });
    return {dx};
  });
}

Variable by_columns(const Variable& x, const Weight& weight) {
  return differentiable(whole_product(x.data(), weight), {x}, /*uses_parameters=*/true,
                        [x = x.data(), weight](Tensor dy) -> Gradients {
                          weight_gradient(weight, dy, x);
                          return {sum_over_slices(dy, weight)};
                        });
}

Variable by_rows(const Variable& x, const Weight& weight) {
  return differentiable(sum_over_slices(x.data(), weight), {x}, /*uses_parameters=*/true,
                        [x = x.data(), weight](Tensor dy) -> Gradients {
                          weight_gradient(weight, x, dy);
                          return {whole_product(dy, weight)};
                        });
}

Variable third(const Variable& qkv, int which) {
  const Tensor& x = qkv.data();
  const std::int64_t rows = x.numel() / (3 * kHeadSize);  // a head of a token
  const Tensor y = activation(with_channels(x, x.size(2) / 3), DType::f32);
  copy_columns(y.reshape({rows, kHeadSize}),
               {x.reshape({rows, 3 * kHeadSize}), which * kHeadSize, kHeadSize});
  return differentiable(y, {qkv}, false, [rows, which, shape = x.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dx = Tensor::zeros(shape, DType::f32);
    const Tensor from = dy.reshape({rows, kHeadSize}), to = dx.reshape({3 * rows, kHeadSize});
    for (std::int64_t i = 0; i < rows; ++i) {
      to.slice(3 * i + which, 3 * i + which + 1).copy_from(from.slice(i, i + 1));
    }
    return {dx};
  });
}

Variable attend(const Variable& q, const Variable& k, const Variable& v, int first) {
  const Tensor o = like(q.data());
  const Tensor keys = in_order_of_tokens(k.data()), values = in_order_of_tokens(v.data());
  const auto end_of = [first](std::int64_t p) { return (piece_at(first + p) + 1) * kPieceTokens; };
  std::vector<Tensor> logsumexps;
  for (std::int64_t p = 0; p < o.size(0); ++p) {
    const Heads out = heads_of_piece(o, p);
    logsumexps.push_back(activation({out.batch, out.heads, kPieceTokens}, DType::f32));
    attention_forward(out, logsumexps.back(), heads_of_piece(q.data(), p),
                      all_heads(keys, end_of(p)), all_heads(values, end_of(p)), kScale);
  }
  const auto backward = [q = q.data(), keys, values, o, logsumexps,
                         end_of](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dq = like(q);
    std::vector<Tensor> dk, dv;  // for each piece of queries
    for (std::int64_t p = 0; p < o.size(0); ++p) {
      dk.push_back(Tensor::zeros(keys.shape(), DType::f32));
      dv.push_back(Tensor::zeros(keys.shape(), DType::f32));
      attention_backward(heads_of_piece(dq, p), all_heads(dk.back(), end_of(p)),
                         all_heads(dv.back(), end_of(p)), heads_of_piece(dy, p),
                         heads_of_piece(q, p), all_heads(keys, end_of(p)),
                         all_heads(values, end_of(p)), heads_of_piece(o, p),
                         logsumexps[static_cast<std::size_t>(p)], kScale);
    }
    Gradients gradients = {dq};
    for (const std::vector<Tensor>& summands : {dk, dv}) {
      tree_reduce(summands.front(), summands, Reduction::sum);
      gradients.push_back(activation(Shape{kPieces, q.size(1), q.size(2)}, DType::f32));
      reorder(gradients.back(), summands.front(), /*to_tokens=*/false);
    }
    return gradients;
  };
  return differentiable(o, {q, k, v}, /*uses_parameters=*/false, backward);
}

Variable gated(const Variable& gate_up) {
  const Tensor& x = gate_up.data();
  const Variable slices = reshape(gate_up, {x.numel() / (2 * kInner), 2 * kInner});
  return reshape(swiglu(slices), with_channels(x, x.size(2) / 2));
}

Variable loss(const Variable& logits, const Tensor& targets, const Tensor& losses) {
  const Tensor x = as_rows(logits.data()), ids = targets.reshape({targets.numel()});
  const Tensor each = activation({x.size(0)}, DType::f32), logsumexp = like(each);
  cross_entropy_forward(each, logsumexp, x, ids);
  const std::int64_t rows = losses.size(0);
  const float share = 1.0f / static_cast<float>(kTokens * rows);
  const std::vector<float> numbers = each.to_vector<float>();
  sum_over_pieces(losses, targets.size(0), [&](const Tensor& summand, std::int64_t piece) {
    std::vector<float> of_rows(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < targets.size(1); ++i) {
      of_rows[static_cast<std::size_t>(i / kPieceTokens)] +=
          share * numbers[static_cast<std::size_t>(piece * targets.size(1) + i)];
    }
    summand.copy_from(Tensor::from(of_rows, {rows}));
  });
  const auto backward = [x, ids, logsumexp, share, shape = logits.shape()](Tensor dy) -> Gradients {
    const CategoryScope category(Category::activations);
    const Tensor dlosses = Tensor::full({x.size(0)}, DType::f32, share * scalar_gradient(dy));
    const Tensor dx = like(x);
    cross_entropy_backward(dx, dlosses, x, logsumexp, ids);
    return {dx.reshape(shape)};
  };
  const Tensor total = activation({1}, DType::f32);
  sum(total, losses);
  return differentiable(total, {logits}, /*uses_parameters=*/false, backward);
}

}  // namespace tessera::ladder
