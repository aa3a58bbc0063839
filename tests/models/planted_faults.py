#!/usr/bin/env python3
"""Plants faults in the models' sources, one at a time, and sees their tests turn red.

Its arguments are those of tests/support/planting.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# Faults of a file that the same tests may notice, by name: text that occurs in the file exactly once, and
# what replaces it.
FAULTS = {
    ("kernels/matmul/cpu/product.cpp", "same_bits"): {
        "a product of one row adds its depth in shorter pieces": (
            "    const std::int64_t depth = depth_of_piece(engine_, slab.product->K);",
            "    const std::int64_t depth = slab.rows == 1 ? 32 : depth_of_piece(engine_, slab.product->K);"),
    },
    ("kernels/matmul/cpu/chains.h", "same_bits"): {
        "a product of one row adds its depth backwards": (
            "  for (; k < depth; ++k, a += a_depth, b += b_stride) {",
            "  const std::int64_t sign = kRows == 1 ? -1 : 1;\n"
            "  if (sign < 0) a += (depth - 1) * a_depth, b += (depth - 1) * b_stride;\n"
            "  for (; k < depth; ++k, a += sign * a_depth, b += sign * b_stride) {"),
    },
    ("models/decoder.cpp", "same_bits"): {
        "a batch's positions begin at 0": (
            "static_cast<std::int32_t>(sequence.cache->length + i)",
            "static_cast<std::int32_t>(i)"),
        "a batch's table of rotations ends with its rows": (
            "std::max(positions.end, sequence.first_position() + sequence.tokens)",
            "0 * sequence.tokens"),
        "log-probabilities of later chunks are those of the first": (
            "wide_logits(Variable(rows.slice(first, last)))",
            "wide_logits(Variable(rows.slice(0, last - first)))"),
        "in generation the length is that of the new tokens": (
            "if (cache != nullptr) positions.length = cache->capacity;",
            "if (cache != nullptr) positions.length = 0;"),
        "sequences of different lengths share a table": (
            "rotary != nullptr && rotary->depends_on_length();",
            "rotary != nullptr && false;"),
        "cached queries see all keys": (
            "*pass.cache, layer, first_key, scale));",
            "*pass.cache, layer, {}, scale));"),
    },
    ("autograd/neighbours.cpp", "joined_weights"): {
        "parameters are joined though other memory lies between them": (
            "a.dtype() != b.dtype() || a.raw() + a.bytes() != b.raw();",
            "a.dtype() != b.dtype();"),
    },
    ("autograd/joined_parameters.cpp", "joined_weights"): {
        "a joined gradient that is a copy does not go back": (
            "  if (!copied_) return;\n",
            "  if (!copied_ || window_.defined()) return;\n"),
    },
    ("autograd/operations/linear.cpp", "golden"): {
        "a residual gets no gradient": (
            "return {input_gradient(dy, {}), dy};",
            "return {input_gradient(dy, {}), Tensor{}};"),
        "the gradients of other uses of a linear layer's input are forgotten": (
            "opposite(transpose), {}, range.of(received));",
            "opposite(transpose), {}, {});"),
        "the residual of GPT-2's feed-forward layer gets no gradient": (
            "return {dx.reshape(x_shape), dy};",
            "return {dx.reshape(x_shape), Tensor{}};"),
        "a gated feed-forward layer leaves out the residual": (
            ".gate = gate},\n             x, residual);",
            ".gate = gate},\n             x, Variable());"),
    },
    ("autograd/experts.cpp", "golden"): {
        "the results of experts are added without their weights": (
            "    return call_.weighs(WeighedInput::down) ? call_.weights : Tensor();",
            "    return Tensor();"),
        "experts forget the residual's gradient": (
            "dweights.joined(), dy};",
            "dweights.joined(), Tensor()};"),
    },
    ("models/layers.cpp", "joined_weights"): {
        "biases stand between the weights that are joined": (
            "  for (const Parameter& weight : weights.parts()) visit(weight);\n"
            "  if (!biases.defined()) return;\n"
            "  for (const Parameter& bias : biases.parts()) visit(bias);\n",
            "  for (std::size_t i = 0; i < weights.parts().size(); ++i) {\n"
            "    visit(weights.parts()[i]);\n"
            "    if (biases.defined()) visit(biases.parts()[i]);\n"
            "  }\n"),
    },
    ("models/key_value_cache.cpp", "same_bits"): {
        "the cache has the queries of packed rows": (
            "queries, 2 * keys}",
            "0 * queries, 2 * keys}"),
    },
    ("models/hub.cpp", "hub"): {
        "a damaged reference leads out of the hub's cache": (
            "check(is_part(hash) && fs::is_directory(snapshot),",
            "check(fs::is_directory(snapshot),"),
    },
    ("models/hugging_face.cpp", "hub"): {
        "a model of the hub hides a folder of its name": (
            "!fs::exists(given) && is_hub_name(given) ?",
            "is_hub_name(given) ?"),
    },
    ("models/chat_template.cpp", "chat_template"): {
        "qwen3 keeps the thoughts of earlier turns": (
            "qwen3_answer(content, last, i > question)",
            "qwen3_answer(content, last, i + question + 1 > 0)"),
        "a tool's answer counts as a question": (
            'if (message.role == "user" && !of_tool) return i;',
            'if (message.role == "user" && (of_tool || !of_tool)) return i;'),
        "a template is known by one of its statements": (
            "std::all_of(statements.begin()",
            "std::any_of(statements.begin()"),
    },
    ("models/tokenizers/utf8.cpp", "chat_template"): {
        "wide spaces are not stripped": (
            "bool is_white_space(char32_t point) {\n",
            "bool is_white_space(char32_t point) {\n  if (point > 0x7f) return false;\n"),
    },
    ("models/rope_config.cpp", "families"): {
        "config.json forgets the kind of angles": (
            "if (rope.angles != RopeAngles::exact) config",
            "if (rope.angles == RopeAngles::exact) return; else if (false) config"),
    },
    ("models/decoder.h", "families"): {
        "a generated token has the position of the one before": (
            "return cache != nullptr ? cache->length : 0;",
            "return cache != nullptr && cache->length > 0 ? cache->length - 1 : 0;"),
    },
    ("models/decoder.cpp", "families"): {
        "a stage begins with the first block": (
            "part = std::max<std::int64_t>(stage.first, 1)",
            "part = 1 + 0 * stage.first"),
        "a stage ends before its last block": (
            "part < std::min(stage.last, parts() - 1)",
            "part < std::min(stage.last - 1, parts() - 1)"),
        "a generated token's queries and keys are not normalized": (
            "  if (!norm.defined()) {\n",
            "  if (!norm.defined() || qkv.shape()[1] == 1) {\n"),
        "a sequence of one chunk more needs no first keys": (
            "if (pass.first_position() + ids.size(1) <= near.chunk + near.window) return",
            "if (pass.first_position() + ids.size(1) <= near.chunk + near.window + 1) return"),
    },
    ("models/decoder.cpp", "documents"): {
        "documents in a row share their attention": (
            "pass.first_key = first_keys(starts, /*chunk=*/0);",
            "pass.first_key = Tensor();"),
        "rotated positions count from the row's start": (
            "  positions.each = document_positions;\n",
            ""),
    },
    ("models/gpt2/model.cpp", "documents"): {
        "GPT-2's positions count from the row's start": (
            "if (pass.document_positions.defined()) return",
            "if (false) return"),
    },
    ("models/documents.cpp", "documents"): {
        "a row goes on with the document of the row before": (
            "const bool starts_here = place == 0 || ids",
            "const bool starts_here = i == 0 || ids"),
    },
    ("kernels/rope/table.cpp", "golden"): {
        "long factors are used for short sequences": (
            "const bool is_long = static_cast<double>(length) > longrope->original_context;",
            "const bool is_long = length > 0;"),
        "short factors are used for long sequences": (
            "return length > original ? original + 1 : 1;",
            "return length > original + 1000 ? original + 1 : 1;"),
        "dynamic scaling forgets the length": (
            "return std::max(length, static_cast<std::int64_t>(dynamic->original_context));",
            "return static_cast<std::int64_t>(dynamic->original_context);"),
    },
    ("models/llama/olmo2_block.cpp", "golden"): {
        "OLMo 2's keys have no norm": (
            "k_norm_(k_proj_(x))",
            "k_proj_(x)"),
        "OLMo 2's feed-forward layer has no norm": (
            "add(middle, post_feedforward_layernorm_(mlp_(middle)))",
            "add(middle, mlp_(middle))"),
    },
    ("models/gemma3/model.cpp", "golden"): {
        "local layers have the angles of global ones": (
            "config.is_local(layer) ? local : global",
            "config.is_local(layer) ? global : global"),
        "Gemma's scores are divided by the root of the head size": (
            "std::sqrt(static_cast<double>(config.query_scalar))",
            "std::sqrt(static_cast<double>(config.head_size))"),
        "Gemma's feed-forward layer has no norm behind it": (
            "add(sum, post_feedforward_layernorm_(mlp_(normed)))",
            "add(sum, mlp_(normed))"),
        "Gemma's gate is silu": (
            "             Gate::gelu),",
            "             Gate::silu),"),
    },
    ("models/rms_decoder.cpp", "gemma3"): {
        "the scale of embeddings is not rounded": (
            "rounded(*options_.embedding_scale, x.dtype())",
            "rounded(*options_.embedding_scale, DType::f32)"),
    },
    ("models/gemma3/config.cpp", "gemma3"): {
        "caps of logits are not looked for": (
            "check(!reader.has(key), \"config.json: {} is given; expected null",
            "check(true, \"config.json: {} is given; expected null"),
    },
    ("models/key_value_cache.cpp", "golden"): {
        "with a cache scores have the usual scale": (
            "attention_scale(q.head_size, scale)",
            "attention_scale(q.head_size)"),
    },
    ("models/rope_config.cpp", "golden"): {
        "longrope has no attention factor": (
            'scaling.number("attention_factor", usual)}',
            'scaling.number("attention_factor", usual / usual)}'),
    },
    ("models/rotary_embedding.cpp", "same_bits"): {
        "a table of another length is kept": (
            "RopeTable& table = tables_[length];",
            "RopeTable& table = tables_[0];"),
    },
    ("kernels/attention/first_key.cpp", "golden"): {
        "a window is a token too long": (
            "position - window + 1)",
            "position - window)"),
    },
    ("models/llama/config.cpp", "golden"): {
        "every layer has a window": (
            "(!window_layers || std::count",
            "(true || std::count"),
    },
    ("kernels/linear/cpu.cpp", "golden"): {
        "the exact form of gelu is tanh's forward": (
            "gelu_forward(isa, part, y, pre, form);",
            "gelu_forward(isa, part, y, pre, GeluForm::tanh);"),
        "the exact form of gelu is tanh's backward": (
            "gelu_backward(isa, part, dx, dx, pre, form);",
            "gelu_backward(isa, part, dx, dx, pre, GeluForm::tanh);"),
    },
    ("models/llama4/attention.cpp", "golden"): {
        "layers with RoPE see all tokens": (
            "rope_ ? AttentionSpan::near : AttentionSpan::document",
            "AttentionSpan::document"),
        "queries are normalized before they are rotated": (
            "  x = positions_->rotary(std::move(x), heads, pass.positions());\n  if (!qk_norm_) return x;\n",
            "  if (!qk_norm_ || pass.tokens < 0) return x;\n"),
        "RoPE's pairs are halves": (
            "rotary(config.rope, shape_of(config), RopePairs::interleaved)",
            "rotary(config.rope, shape_of(config), RopePairs::half_split)"),
        "layers with RoPE have a temperature": (
            "} else if (temperature_tuning_) {",
            "}\n  if (temperature_tuning_) {"),
    },
    ("models/decoder.cpp", "golden", "documents"): {
        "chunks are counted from the row's start": (
            "starts.defined() ? starts : Tensor::zeros(ids.shape(), DType::i32)",
            "Tensor::zeros(starts.defined() ? starts.shape() : ids.shape(), DType::i32)"),
    },
    ("models/decoder.cpp", "families", "golden"): {
        "chunks are counted from the first token that is not in the cache": (
            "return first_keys(row_starts, near.chunk, pass.first_position(), near.window);",
            "return first_keys(row_starts, near.chunk, 0, near.window);"),
    },
    ("models/llama4/config.cpp", "llama4", "golden"): {
        "no_rope_layers names the layers without RoPE": (
            "return rope_layers[static_cast<std::size_t>(layer)] != 0;",
            "return rope_layers[static_cast<std::size_t>(layer)] == 0;"),
        "the temperature's first step is a token late": (
            "(position + 1) / config.floor_scale",
            "position / config.floor_scale"),
    },
    ("kernels/preference/pair.h", "preference"): {
        "ipo compares sums": (
            "const bool sums = options.kind == PreferenceKind::dpo;",
            "const bool sums = options.kind != PreferenceKind::simpo;"),
        "simpo has a reference": (
            "const bool refers = options.kind != PreferenceKind::simpo;",
            "const bool refers = true;"),
        "a margin favours the chosen answer": (
            "const Real x = h - static_cast<Real>(options.margin);",
            "const Real x = h + static_cast<Real>(options.margin);"),
        "a smoothed loss has the slope of a sharp one": (
            "slope = smoothing * Math::sigmoid(x) - (1 - smoothing) * Math::sigmoid(-x);",
            "slope = -Math::sigmoid(-x);"),
    },
    ("autograd/operations/loss.cpp", "preference"): {
        "an objective's factors are left out": (
            "of(rows), targets_of, of(factors));",
            "of(rows), targets_of, Tensor());"),
    },
    ("models/llama4/attention.cpp", "documents"): {
        "the temperature's positions count from the row's start": (
            "positions_->temperature(std::move(q), heads, pass.positions())",
            "positions_->temperature(std::move(q), heads, TokenPositions{{.first = pass.first_position()}})"),
    },
    ("models/llama4/model.cpp", "golden"): {
        "a token's weight multiplies its expert's result": (
            ".weighed = WeighedInput::gate_up",
            ".weighed = WeighedInput::down"),
        "there is no shared expert": (
            "          .shared_width = config.expert_width,\n",
            ""),
    },
    ("models/llama4/config.cpp", "llama4"): {
        "an empty moe_layers is as none": (
            "if (!expert_layers) return",
            "if (!expert_layers || expert_layers->empty()) return"),
    },
    ("models/llama4/weights.cpp", "llama4"): {
        "files of the whole model are not found": (
            '          .outer_prefix = "language_model.",\n',
            ""),
    },
    ("models/llama4/weights.cpp", "hugging_face"): {
        "files with biases of Llama 4's routers are refused": (
            " || is_router_bias(tensor);",
            ";"),
    },
    ("models/weight_files.cpp", "llama4"): {
        "the vision model's layers count": (
            "if (names_.is_not_a_parameter(name)) continue;",
            ""),
    },
    ("models/tokenizers/bpe_merge.cpp", "bpe"): {
        "of equal pairs the rightmost merges first": (
            "left > other.left",
            "left < other.left"),
        "a queued pair is merged although one of the two has changed": (
            "symbols_[next.left] == next.left_id && symbols_[next.right] == next.right_id;",
            "symbols_[next.right] == next.right_id;"),
    },
    ("models/tokenizers/bpe.cpp", "bpe"): {
        "unknown characters are fused though the file does not say so": (
            "if (unknown_waits && !options_.fuse_unknown) symbols",
            "if (false) symbols"),
        "a whole piece of the vocabulary is merged all the same": (
            "if (options_.ignore_merges) {\n    if (const auto",
            "if (false) {\n    if (const auto"),
    },
    ("models/tokenizers/added_tokens.cpp", "tokenizer_golden"): {
        "an added token keeps the spaces after it as text": (
            "while (token->takes_right && ",
            "while (false && "),
        "an added token is found inside a word": (
            "if (token->single_word && ",
            "if (false && "),
    },
    ("models/tokenizers/bpe_tokenizer.cpp", "bpe"): {
        "threads agree before they do": (
            "mark != job.marks.end() && mark->text == next) break;",
            "mark != job.marks.end()) break;"),
    },
    ("models/tokenizers/regex.cpp", "bpe"): {
        "\\s is PCRE2's": (
            'made += "\\\\p{White_Space}";',
            'made += "\\\\s";'),
    },
    ("models/tokenizers/utf8.cpp", "bpe"): {
        "broken bytes become one U+FFFD": (
            "if (!may_follow(i == 1 ? first : 0x80, next)) return {{0, i}, false};",
            "if (!may_follow(i == 1 ? first : 0x80, next)) return {{0, length}, false};"),
    },
    ("models/tokenizers/normalizers.cpp", "tokenizer_golden"): {
        "NFC only decomposes": (
            "unicode_form(UTF8PROC_COMPOSE, true)",
            "unicode_form(UTF8PROC_DECOMPOSE, true)"),
    },
    ("models/tokenizers/splitters.cpp", "tokenizer_golden"): {
        "every piece gets the space of the first": (
            "(prepend_ == Prepend::first && text.at_start)",
            "(prepend_ == Prepend::first)"),
    },
    ("models/tokenizers/tokenizer_json.cpp", "tokenizer_golden"): {
        "the template's token comes after the text": (
            "auto& side = after_text ? parts.after : parts.before;",
            "auto& side = parts.after;"),
    },
    ("models/routers.cpp", "routers"): {
        "a block that runs again in backward counts its tokens again": (
            "  if (recording_) {\n    const bool waits",
            "  if (in_step_ && !recording_) chosen_in_step_.push_back({layer, routing.offsets});\n"
            "  if (recording_) {\n    const bool waits"),
        "the counts of a micro-batch replace those of the one before": (
            "    chosen_in_step_.push_back({routed.layer, routed.offsets});\n",
            "    if (routed.layer == 0) chosen_in_step_.clear();\n"
            "    chosen_in_step_.push_back({routed.layer, routed.offsets});\n"),
        "biases move although the routers have moved on to their old copies": (
            "  if (on_device.defined()) {",
            "  if (on_device.defined() && bias.values.empty()) {"),
        "hf's loads are those of each layer": (
            "for (const RoutedLayer& routed : pass.layers) add_counts(sums, 0, routed.offsets);",
            "add_counts(sums, 0, pass.layers.front().offsets);"),
        "lagged gives every layer the loads of the first": (
            "lagged ? counts_of_layer(last_.counts, layer) :",
            "lagged ? counts_of_layer(last_.counts, 0) :"),
        "the routers' losses are not scaled as the model's": (
            "terms->scale = step_.loss_scale;",
            "terms->scale = 1.0;"),
    },
    ("models/qwen3_moe/model.cpp", "golden"): {
        "the router's weights are not divided by their sum": (
            "config.normalized_weights ? RouterWeights::normalized_softmax",
            "false ? RouterWeights::normalized_softmax"),
    },
    ("models/qwen3_moe/config.cpp", "golden", "qwen3_moe"): {
        "mlp_only_layers have experts": (
            "std::count(dense_layers.begin(), dense_layers.end(), layer) == 0",
            "layer >= 0"),
        "the first of decoder_sparse_step layers has experts": (
            "(layer + 1) % experts_every == 0",
            "layer % experts_every == 0"),
    },
    ("models/qwen3_moe/weights.cpp", "golden"): {
        "an expert's up is read as its gate": (
            '{"gate_proj", "up_proj"}',
            '{"up_proj", "gate_proj"}'),
    },
    ("models/shard_file.cpp", "qwen3_moe"): {
        "a shard that begins inside an expert is read from the expert's beginning": (
            "flat.slice(from - begin, until - begin)",
            "flat.slice(0, until - from)"),
    },
    ("models/peft.cpp", "adapters"): {
        "every adapter is scaled by alpha / r": (
            'reader.flag("use_rslora", false)',
            'reader.flag("use_rslora", false) && options.rank < 0'),
        "PEFT takes the weights of GPT-2 for [out, in]": (
            '{"fan_in_fan_out", is_in_out(model)}',
            '{"fan_in_fan_out", !is_in_out(model)}'),
    },
    ("models/adapters.cpp", "adapters"): {
        "an end of a name needs no dot before it": (
            'matches_pattern("*." + std::string(pattern), layer)',
            'matches_pattern("*" + std::string(pattern), layer)'),
        "A starts within 1 / in": (
            "1.0 / std::sqrt(static_cast<double>(inputs))",
            "1.0 / static_cast<double>(inputs)"),
    },
    ("autograd/operations/adapter.cpp", "adapters"): {
        "the addition of a joined weight is in the columns of the one before": (
            "    column += part.held_shape()[0];",
            "    column += 0 * part.held_shape()[0];"),
    },
    ("models/fp8_form.cpp", "fp8_form"): {
        "every block has the scale of the first one": (
            "    const float scale = scales[static_cast<std::size_t>(block)];",
            "    const float scale = scales[static_cast<std::size_t>(0 * block)];"),
        "a block of zeros has no scale": (
            "scale = scale > 0.0f ? grid.largest / scale : 1.0f;",
            "scale = grid.largest / scale;"),
        "blocks below each other share a scale": (
            "f(row / kBlock * across + block, row * columns + block * kBlock);",
            "f(0 * across + block, row * columns + block * kBlock);"),
        "activations with fixed scales are accepted": (
            'form->text("activation_scheme", "dynamic") == "dynamic" &&',
            'form->has("activation_scheme") &&'),
    },
    ("models/hugging_face.cpp", "hugging_face"): {
        "the biases of routers are not saved": (
            "for (const auto& [name, bias] : biases) infos.push_back({name, {.shape = bias.shape()}});",
            "const_cast<NamedTensors&>(biases).clear();"),
    },
}

AUTOGRAD_FAULTS = {
    ("autograd/operations/linear.cpp", "fp8"): {
        "the rows inside a feed-forward network have the scale of its input": (
            "hidden = fp8_factor(layers.proj_weight, Fp8Role::input, hidden.values);",
            "hidden = fp8_factor(layers.fc_weight, Fp8Role::input, hidden.values);"),
        "the gradients inside a feed-forward network have the scale of inputs": (
            "return fp8_factor(fc_weight, Fp8Role::gradient, dpre);",
            "return fp8_factor(fc_weight, Fp8Role::input, dpre);"),
    },
    ("autograd/experts.cpp", "fp8"): {
        "rows at experts are not rounded": (
            "    return fp8_factor(layer.weight, role, at.at_experts(std::move(journey)));",
            "    return Factor(at.at_experts(std::move(journey)));"),
        "the rows inside experts have the scale of their input": (
            "    h = fp8_factor(call_.down.weight, Fp8Role::input, h.values);",
            "    h = fp8_factor(call_.gate_up.weight, Fp8Role::input, h.values);"),
        "the gradients of experts' results have the scale of inputs": (
            "call_.at_experts(call_.down, Fp8Role::gradient,",
            "call_.at_experts(call_.down, Fp8Role::input,"),
        "the gradients inside experts are not rounded": (
            "    gate_up_ = fp8_factor(call_.gate_up.weight, Fp8Role::gradient, gate_up_.values);\n",
            ""),
        "the rows of the gradient of down's weight are not rounded": (
            "sum.add(fp8_factor(call_.down.weight, Fp8Role::input, h), dy, call_.at);",
            "sum.add(h, dy, call_.at);"),
    },
    ("autograd/fp8.cpp", "fp8_blocks"): {
        "blocks of tokens go on in the next leaf": (
            "blocks == Fp8Blocks::vectors ? token_leaves() : 1;",
            "blocks == Fp8Blocks::vectors ? 1 : token_leaves();"),
        "a weight's gradient has the blocks of rows": (
            "/*columns=*/is_used_again && weight.trainable());",
            "/*columns=*/is_used_again && !weight.trainable());"),
        "an evaluation with scales of blocks makes columns": (
            "/*columns=*/is_used_again && weight.trainable());",
            "/*columns=*/(is_used_again || true) && weight.trainable());"),
        "a weight has a scale for each row": (
            "in_blocks(all, place->format, Fp8Blocks::squares,",
            "in_blocks(all, place->format, Fp8Blocks::vectors,"),
    },
    ("autograd/operations/linear_gradients.cpp", "fp8_blocks"): {
        "a bias by itself has the rows of the first leaf": (
            "return rows_of_leaf(expanded(rows), leaf, leaves);",
            "return rows_of_leaf(expanded(rows), 0 * leaf, leaves);"),
        "every leaf has the scales of the first": (
            "columns.inverse_of_columns = of_leaf(rows.inverse_of_columns);",
            "columns.inverse_of_columns = rows.inverse_of_columns.slice(0, 1).reshape(of_leaf(rows.inverse_of_columns).shape());"),
    },
    ("autograd/joined_parameters.cpp", "fp8"): {
        "a join loses the weights that are there in 8 bits": (
            "  } else if (part.data().dtype() == rows.dtype()) {\n    rows.copy_from(part.data());\n",
            "  } else if (part.data().dtype() == rows.dtype()) {\n    rows.zero();\n"),
    },
    ("autograd/fp8.cpp", "fp8"): {
        "an evaluation's magnitudes are kept": (
            "unread.defined() ? unread : place->largest",
            "unread.defined() && false ? unread : place->largest"),
        "gradients have the range of inputs": (
            "{forward, forward, backward}",
            "{forward, forward, std::min(forward, backward)}"),
        "a factor is as large as its scaled numbers": (
            "Tensor::empty(values.shape(), place->format), place->inverse);",
            "Tensor::empty(values.shape(), place->format), place->scale);"),
        "a gathered weight is as large as its scaled numbers": (
            "  return {values, place->inverse};",
            "  return {values, place->scale};"),
        "neighbours that are joined are rounded one by one": (
            "all.defined()) {",
            "all.defined() && weight.parts().size() == 1) {"),
        "a joined weight has a scale of its own": (
            "number_.find(weight.first_of_join())",
            "number_.find(weight.name())"),
        "a history that is set makes no scales": (
            "  history_.copy_from(Tensor::from(values, history_.shape()));\n  fp8_scales(scales_, inverses_, history_, limits_);\n",
            "  history_.copy_from(Tensor::from(values, history_.shape()));\n"),
    },
}

BATCHES = [planting.Batch({**planting.faults_of(FAULTS, "test_models_"), **planting.faults_of(AUTOGRAD_FAULTS, "test_autograd_")},
                          folder="build/planted_faults", preset="release")]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
