#include "models/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "autograd/adapter.h"
#include "autograd/operations.h"
#include "autograd/operations/divided.h"
#include "kernels/attention/first_key.h"
#include "kernels/matmul/op.h"
#include "kernels/qk_norm/op.h"
#include "models/documents.h"
#include "models/row_pieces.h"
#include "models/stage_relay.h"
#include "runtime/category.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {

namespace {

/// Does the pass attend to tokens before its own?
bool has_cache(const Pass& pass) {
  return pass.cache != nullptr || !pass.sequences.empty();
}

/// f(rows, pass) of every sequence's own rows of `inputs` [1, n, channels], joined.
template <std::size_t kInputs, typename F>
Variable for_each_sequence(const std::array<Tensor, kInputs>& inputs, const Pass& pass,
                           const F& f) {
  const std::int64_t rows = inputs[0].size(1);
  Tensor joined;
  std::int64_t first = 0;
  for (const Pass& sequence : pass.sequences) {
    const std::int64_t last = first + sequence.tokens;
    std::array<Variable, kInputs> own;
    for (std::size_t i = 0; i < kInputs; ++i) {
      const std::int64_t channels = inputs[i].size(2);
      own[i] = Variable(inputs[i]
                            .reshape({rows, channels})
                            .slice(first, last)
                            .reshape({1, sequence.tokens, channels}));
    }
    const Tensor result = f(own, sequence).data();
    if (!joined.defined()) joined = Tensor::empty({rows, result.size(2)}, result.dtype());
    joined.slice(first, last).copy_from(result.reshape({sequence.tokens, result.size(2)}));
    first = last;
  }
  return Variable(joined.reshape({1, rows, joined.size(1)}));
}

/// Packed heads with queries and keys normalized, if there are norms, and rotated. Without gradients.
Variable placed_heads(Variable qkv, std::int64_t heads, std::int64_t kv_heads, const Rotary& rotary,
                      const QkNorm& norm) {
  const std::int64_t head_size = qkv.shape()[2] / (heads + 2 * kv_heads);
  if (!norm.defined()) {
    return rope(std::move(qkv), heads + kv_heads, head_size, rotary.table, rotary.positions);
  }
  const Tensor x = qkv.is_last() ? qkv.data() : qkv.data().clone();
  const Tensor rstd =
      Tensor::empty({x.size(0), x.size(1), heads + kv_heads}, statistics_dtype(x.dtype()));
  qk_norm_forward(x, rstd, x, norm.weights.data(), rotary, heads, kv_heads, norm.epsilon,
                  norm.offset);
  return Variable(x);
}

}  // namespace

TokenPositions Pass::positions() const {
  TokenPositions positions;
  positions.first = first_position();
  positions.each = document_positions;
  if (cache != nullptr) positions.length = cache->capacity;
  if (row_tokens > 0) positions.end = positions.length = row_tokens;
  for (const Pass& sequence : sequences) {
    positions.end = std::max(positions.end, sequence.first_position() + sequence.tokens);
  }
  return positions;
}

Variable attend(Variable qkv, std::int64_t heads, std::int64_t kv_heads, const Pass& pass,
                std::int64_t layer, const RotaryEmbedding* rotary, const QkNorm& norm,
                AttentionSpan span, std::optional<double> scale) {
  const Tensor& first_key = pass.first_key_of(span);
  // Sequences of different lengths may have different tables.
  const bool apart = !pass.sequences.empty() && rotary != nullptr && rotary->depends_on_length();
  const Rotary by = rotary != nullptr && !apart ? rotary->of(qkv, pass.positions()) : Rotary();
  if (!has_cache(pass)) {
    return attention(std::move(qkv), heads, kv_heads, first_key, by, norm, scale);
  }
  if (!apart && (by.defined() || norm.defined())) {
    qkv = placed_heads(std::move(qkv), heads, kv_heads, by, norm);
  }
  if (!pass.sequences.empty()) {
    return for_each_sequence(std::array{qkv.data()}, pass, [&](const auto& own, const Pass& one) {
      return attend(own[0], heads, kv_heads, one, layer, apart ? rotary : nullptr,
                    apart ? norm : QkNorm(), span, scale);
    });
  }
  return Variable(
      cached_attention(qkv.data(), heads, kv_heads, *pass.cache, layer, first_key, scale));
}

Variable attend(const Variable& q, const Variable& k, const Variable& v, std::int64_t heads,
                std::int64_t kv_heads, const Pass& pass, std::int64_t layer, AttentionSpan span) {
  const Tensor& first_key = pass.first_key_of(span);
  if (!has_cache(pass)) return attention(q, k, v, heads, kv_heads, first_key);
  if (!pass.sequences.empty()) {
    const auto attend_one = [&](const auto& own, const Pass& one) {
      return attend(own[0], own[1], own[2], heads, kv_heads, one, layer, span);
    };
    return for_each_sequence(std::array{q.data(), k.data(), v.data()}, pass, attend_one);
  }
  return Variable(cached_attention(q.data(), k.data(), v.data(), heads, kv_heads, *pass.cache,
                                   layer, first_key));
}

namespace {

std::vector<Parameter> parameters_of_all(const std::vector<const Module*>& modules) {
  std::vector<Parameter> parameters;
  for (const Module* module : modules) {
    for (const Parameter& parameter : parameters_of(*module)) parameters.push_back(parameter);
  }
  return parameters;
}

/// The documents' starts; those of rows that are a document each if `starts` is undefined.
Tensor starts_or_rows(const Tensor& starts, const Tensor& ids) {
  return starts.defined() ? starts : Tensor::zeros(ids.shape(), DType::i32);
}

void check_starts(const Tensor& starts, const Tensor& ids) {
  check(starts.shape() == ids.shape(),
        "the documents' starts are {}; expected the shape of the inputs, {}", describe(starts),
        describe(ids));
}

/// The tokens that queries of near tokens see; 0: no chunks, or no window.
struct Near {
  std::int64_t chunk, window;

  explicit Near(const TransformerShape& shape)
      : chunk(shape.chunks.layers > 0 ? shape.chunks.tokens : 0),
        window(shape.windows.layers > 0 ? shape.windows.tokens : 0) {}
};

/// Lets the tokens of `ids` attend to their own documents, and count their positions from these.
void place_documents(Pass& pass, const Tensor& ids, const Tensor& starts) {
  check_starts(starts, ids);
  pass.document_positions = document_positions(starts);
  pass.first_key = first_keys(starts, /*chunk=*/0);
}

/// The first keys of queries that see near tokens only. `starts` may be undefined.
Tensor near_keys(const Pass& pass, const Tensor& ids, const Tensor& starts,
                 const TransformerShape& shape) {
  const Near near(shape);
  // No position reaches the second chunk, or leaves the first window.
  if (pass.first_position() + ids.size(1) <= near.chunk + near.window) return pass.first_key;
  const Tensor row_starts = starts_or_rows(starts, ids);
  return first_keys(row_starts, near.chunk, pass.first_position(), near.window);
}

/// The same for pieces of rows that ranks share out, near keys included.
void place_pieces(Pass& pass, const Tensor& ids, const Tensor& starts,
                  const TransformerShape& shape, const TokenCut& cut) {
  if (starts.defined()) {
    check_starts(starts, ids);
    pass.first_key = first_keys_in_pieces(starts, cut, 0, 0);
  }
  pass.document_positions = positions_in_pieces(ids.shape(), starts, cut);
  pass.first_key_near = pass.first_key;
  const Near near(shape);
  const std::int64_t reach = near.chunk + near.window;
  if (reach > 0 && pass.row_tokens > reach) {
    pass.first_key_near =
        first_keys_in_pieces(starts_or_rows(starts, ids), cut, near.chunk, near.window);
  }
}

/// The new tokens of sequences, one after another: i32 [1, n], and their positions.
struct JoinedTokens {
  Tensor ids, positions;
  std::vector<std::int64_t> ends;  // of the sequences
};

JoinedTokens join(std::span<const NewTokens> sequences) {
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> ends;
  for (const NewTokens& sequence : sequences) {
    for (std::int64_t i = 0; i < sequence.tokens.numel(); ++i) {
      positions.push_back(static_cast<std::int32_t>(sequence.cache->length + i));
    }
    ends.push_back(static_cast<std::int64_t>(positions.size()));
  }
  const std::int64_t count = ends.back();
  const Tensor ids = Tensor::empty({count}, DType::i32);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Tensor& own = sequences[i].tokens;
    ids.slice(ends[i] - own.numel(), ends[i]).copy_from(own);
  }
  return {ids.reshape({1, count}), Tensor::from(positions, {1, count}), ends};
}

std::int64_t logit_rows(std::span<const NewTokens> sequences) {
  std::int64_t rows = 0;
  for (const NewTokens& sequence : sequences) rows += sequence.rows;
  return rows;
}

/// The rows of x [1, n, channels] that get logits.
Tensor chosen_rows(std::span<const NewTokens> sequences, const std::vector<std::int64_t>& ends,
                   const Tensor& x) {
  const Tensor rows = x.reshape({x.size(1), x.size(2)});
  const Tensor chosen = Tensor::empty({logit_rows(sequences), x.size(2)}, x.dtype());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t count = sequences[i].rows;
    chosen.slice(first, first + count).copy_from(rows.slice(ends[i] - count, ends[i]));
    first += count;
  }
  return chosen;
}

}  // namespace

void Decoder::add_tied_ends(const std::vector<const Module*>& modules) {
  units_.push_back(
      std::make_unique<Unit>("embedding", parameters_of_all(modules), /*at_both_ends=*/true));
}

void Decoder::add_embedding(const Module& module) {
  units_.push_back(std::make_unique<Unit>("embedding", parameters_of(module)));
}

void Decoder::add_head(const std::vector<const Module*>& modules) {
  units_.push_back(std::make_unique<Unit>("head", parameters_of_all(modules)));
}

Unit& Decoder::head_unit() const {
  return units_.front()->at_both_ends() ? *units_.front() : *units_.back();
}

void Decoder::add_block(const std::string& unit_name, std::unique_ptr<DecoderBlock> block) {
  units_.push_back(std::make_unique<Unit>(unit_name, parameters_of(*block)));
  blocks_.push_back(std::move(block));
}

void Decoder::add_adapters(const MakeAdapter& make) {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    for (const Parameter& weight : parameters_of(*blocks_[i])) {
      if (!is_adaptable(weight)) continue;
      if (auto adapter = make(weight)) weight.set_adapter(std::move(adapter));
    }
    std::unique_ptr<Unit>& unit = units_[i + 1];
    unit = std::make_unique<Unit>(unit->name(), parameters_of(*blocks_[i]));
  }
}

void Decoder::check_tokens(const Tensor& ids, const Pass& pass) const {
  check(ids.dtype() == DType::i32 && ids.rank() == 2 && ids.numel() > 0,
        "the model's inputs are {}; expected token ids, i32 [B, T]", describe(ids));
  const std::int64_t tokens =
      pass.row_tokens > 0 ? pass.row_tokens : pass.first_position() + ids.size(1);
  check(tokens <= shape_.context,
        "a sequence of {} tokens is longer than the model's context of {}", tokens, shape_.context);
}

Pass Decoder::placed(Pass pass, const Tensor& ids, const Tensor& document_starts) const {
  const std::shared_ptr<const ContextAxis>& axis = context_axis();
  if (axis != nullptr) {
    axis->begin(ids.size(0) / axis->cut().pieces(), ids.size(1));
    pass.row_tokens = ids.size(1) * axis->cut().pieces_of_row();
  }
  check_tokens(ids, pass);
  {
    const CategoryScope category(Category::activations);
    if (axis != nullptr) {
      place_pieces(pass, ids, document_starts, shape_, axis->cut());
      return pass;
    }
    if (document_starts.defined()) place_documents(pass, ids, document_starts);
    if (shape_.chunks.layers + shape_.windows.layers > 0) {
      pass.first_key_near = near_keys(pass, ids, document_starts, shape_);
    }
  }
  return pass;
}

Variable Decoder::trunk(const Stage& stage, Variable x, const Tensor& ids, const Pass& pass) {
  const Unit& first_unit =
      stage.first + 1 < parts() ? *units_[static_cast<std::size_t>(stage.first)] : head_unit();
  if (const auto& axis = first_unit.parameters().front().tensor_axis()) {
    axis->begin(ids.size(0), ids.size(1));
  }
  if (stage.first == 0) {
    x = units_.front()->run_once([&](const Variable&) { return embed(ids, pass); }, Variable());
  }
  for (std::int64_t part = std::max<std::int64_t>(stage.first, 1);
       part < std::min(stage.last, parts() - 1); ++part) {
    // By value: a recomputed block runs again in backward, when `pass` is gone.
    const auto forward = [block = blocks_[static_cast<std::size_t>(part - 1)].get(),
                          pass](const Variable& h) {
      const AdapterTraining scope(pass.training);
      return block->forward(h, pass);
    };
    x = units_[static_cast<std::size_t>(part)]->run(forward, x);
  }
  return x;
}

Variable Decoder::trunk(const Tensor& ids, const Pass& pass) {
  const auto compute = [&](const Stage& stage, const Variable& x) {
    return trunk(stage, x, ids, pass);
  };
  const Variable x = relay_ == nullptr ? compute({0, parts()}, Variable())
                                       : relay_->run_stages(ids.shape(), compute);
  if (pass.cache != nullptr) pass.cache->length += ids.size(1);
  for (const Pass& sequence : pass.sequences) sequence.cache->length += sequence.tokens;
  return x;
}

Variable Decoder::from_head(const Variable& x, const Shape& shape, bool wide,
                            const std::function<Variable(const Variable&)>& head) {
  Variable result;
  if (x.defined()) result = head_unit().run_once(head, x);
  if (relay_ == nullptr) return result;
  const DType dtype = wide ? statistics_dtype(relay_->dtype()) : relay_->dtype();
  return Variable(relay_->share(x.defined() ? result.data() : Tensor(), shape, dtype));
}

Variable Decoder::loss(const Tensor& inputs, const Targets& targets, double loss_scale,
                       bool training, const Tensor& document_starts,
                       const RowObjective& objective) {
  return loss_of_stage({0, parts()}, Variable(), inputs, targets, loss_scale, training,
                       document_starts, objective);
}

Variable Decoder::loss_of_stage(const Stage& stage, const Variable& x, const Tensor& inputs,
                                const Targets& targets, double loss_scale, bool training,
                                const Tensor& document_starts, const RowObjective& objective) {
  check(0 <= stage.first && stage.first < stage.last && stage.last <= parts(),
        "a stage has the parts {} to {}, and the model has {}", stage.first, stage.last, parts());
  check(x.defined() == (stage.first > 0),
        "a stage takes the residual stream unless it has the embedding");
  check(targets.classes.numel() == inputs.numel() * targets.each(),
        "the targets are {}; expected {} for each of the inputs, {}", describe(targets.classes),
        targets.each(), describe(inputs));
  const bool counts = training && routers_;
  if (counts) routers_->start_forward();
  const Variable y =
      trunk(stage, x, inputs, placed({.training = training}, inputs, document_starts));
  if (counts) routers_->finish_forward();
  if (stage.last < parts()) return y;
  const auto further_use = head_unit().at_both_ends() ? FurtherUse::yes : FurtherUse::no;
  return head_unit().run_once(
      [&](const Variable& h) {
        return linear_cross_entropy(final_norm(h), head_weight(), targets, loss_scale, kIgnoreIndex,
                                    kAutomaticChunk, further_use, objective);
      },
      y);
}

Variable Decoder::logits(const Tensor& inputs, const Tensor& document_starts) {
  const Variable x = trunk(inputs, placed({}, inputs, document_starts));
  return from_head(
      x, {inputs.size(0), inputs.size(1), shape_.vocab_size}, /*wide=*/false,
      [&](const Variable& h) {
        const Variable logits = linear(final_norm(h), head_weight(), Parameter());
        const SharedAxis& axis = head_weight().tensor_axis();
        if (axis == nullptr || axis->ranks() == 1) return logits;
        const std::int64_t rows = inputs.numel(), own = logits.shape()[-1];
        const Tensor all =
            whole_columns(axis, logits.data().reshape({rows, own}), shape_.vocab_size);
        return Variable(all.reshape({inputs.size(0), inputs.size(1), shape_.vocab_size}));
      });
}

Tensor Decoder::next_logits(std::span<const NewTokens> sequences) {
  check(!sequences.empty(), "next_logits of no sequence");
  const NoGradient no_gradient;
  const CategoryScope category(Category::activations);
  const JoinedTokens joined = join(sequences);
  Pass pass{.document_positions = joined.positions};
  for (const NewTokens& sequence : sequences) {
    const std::int64_t tokens = sequence.tokens.numel();
    check(sequence.rows >= 1 && sequence.rows <= tokens, "logits of {} of {} new tokens",
          sequence.rows, tokens);
    pass.sequences.push_back(placed({.cache = sequence.cache, .tokens = tokens},
                                    sequence.tokens.reshape({1, tokens}), Tensor()));
  }
  const bool single = sequences.size() == 1;
  Variable x = whole(trunk(joined.ids, single ? pass.sequences.front() : pass), joined.ids);
  if (x.defined()) x = Variable(chosen_rows(sequences, joined.ends, x.data()));
  return from_head(x, {logit_rows(sequences), shape_.vocab_size}, /*wide=*/true,
                   [&](const Variable& h) { return Variable(wide_logits(h)); })
      .data();
}

Tensor Decoder::log_probabilities(const Tensor& inputs, const Tensor& targets) {
  check(targets.shape() == inputs.shape(),
        "the targets are {}; expected the shape of the inputs, {}", describe(targets),
        describe(inputs));
  const NoGradient no_gradient;
  const CategoryScope category(Category::activations);
  const Variable x = whole(trunk(inputs, placed({}, inputs, Tensor())), inputs);
  const std::int64_t count = inputs.numel();
  // The logits of all tokens at once could be larger than the model.
  constexpr std::int64_t kRows = 256;
  const auto head = [&](const Variable& h) {
    const Tensor rows = h.data().reshape({count, shape_.width});
    const Tensor result = Tensor::empty({count}, statistics_dtype(h.dtype()));
    for (std::int64_t first = 0; first < count; first += kRows) {
      const std::int64_t last = std::min(count, first + kRows);
      const Tensor logits = wide_logits(Variable(rows.slice(first, last)));
      result.slice(first, last)
          .copy_from(log_probabilities_of(logits, targets.reshape({count}).slice(first, last)));
    }
    return Variable(result);
  };
  return from_head(x, {count}, /*wide=*/true, head).data().reshape(inputs.shape());
}

Tensor Decoder::wide_logits(const Variable& rows) const {
  const Parameter& weight = head_weight();
  const Tensor logits =
      Tensor::empty({rows.shape()[0], weight.held_shape()[0]}, statistics_dtype(rows.dtype()));
  matmul(logits, final_norm(rows).data(), weight.data(), Transpose::no, Transpose::yes);
  return whole_columns(weight.tensor_axis(), logits, shape_.vocab_size);
}

Variable Decoder::whole(const Variable& x, const Tensor& ids) const {
  const SharedAxis& axis = head_weight().tensor_axis();
  if (axis == nullptr || !x.defined()) return x;
  const Tensor rows =
      whole_rows(axis, x.data().reshape({x.data().numel() / shape_.width, shape_.width}));
  return Variable(rows.reshape({ids.size(0), ids.size(1), shape_.width}));
}

}  // namespace tessera
