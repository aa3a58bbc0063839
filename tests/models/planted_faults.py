#!/usr/bin/env python3
"""Plants faults in the models' sources, one at a time, and sees their tests turn red.

Its arguments are those of tests/support/planting.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# A file, text that occurs in it exactly once, what replaces it, and the tests that are run.
FAULTS = {
    # ---- the same bits in training and generation
    "a product of one row adds its depth in shorter pieces": (
        "kernels/matmul/cpu/product.cpp",
        "    const std::int64_t piece = depth_of_piece(engine_, slab.product->K);",
        "    const std::int64_t piece = slab.rows == 1 ? 32 : depth_of_piece(engine_, slab.product->K);",
        ["same_bits"]),
    "a product of one row adds its depth backwards": (
        "kernels/matmul/cpu/chains.h",
        "  for (; k < depth; ++k, a += a_depth, b += b_stride) {",
        "  const std::int64_t sign = kRows == 1 ? -1 : 1;\n"
        "  if (sign < 0) a += (depth - 1) * a_depth, b += (depth - 1) * b_stride;\n"
        "  for (; k < depth; ++k, a += sign * a_depth, b += sign * b_stride) {",
        ["same_bits"]),
    "a batch's positions begin at 0": (
        "models/decoder.cpp",
        "static_cast<std::int32_t>(sequence.cache->length + i)",
        "static_cast<std::int32_t>(i)",
        ["same_bits"]),
    "a batch's table of rotations ends with its rows": (
        "models/decoder.cpp",
        "std::max(positions.end, sequence.first_position() + sequence.tokens)",
        "0 * sequence.tokens",
        ["same_bits"]),
    "log-probabilities of later chunks are those of the first": (
        "models/decoder.cpp",
        "wide_logits(Variable(h.data().slice(first, last)))",
        "wide_logits(Variable(h.data().slice(0, last - first)))",
        ["same_bits"]),

    # ---- joined weights
    "parameters are joined though other memory lies between them": (
        "autograd/joined_parameters.cpp",
        "a.dtype() != b.dtype() || a.raw() + a.bytes() != b.raw();",
        "a.dtype() != b.dtype();",
        ["joined_weights"]),
    "a joined gradient that is a copy does not go back": (
        "autograd/joined_parameters.cpp",
        "  if (!copied_) return;\n",
        "  if (!copied_ || window_.defined()) return;\n",
        ["joined_weights"]),
    "a residual gets no gradient": (
        "autograd/operations/linear.cpp",
        "return {input_gradient(dy, {}), dy};",
        "return {input_gradient(dy, {}), Tensor{}};",
        ["golden"]),
    "the gradients of other uses of a linear layer's input are forgotten": (
        "autograd/operations/linear.cpp",
        "opposite(transpose), {},\n                     as_rows(received));",
        "opposite(transpose), {},\n                     {});",
        ["golden"]),
    "the results of experts are added without their weights": (
        "autograd/experts.cpp",
        "call.weighs(WeighedInput::down) ? call.weights : Tensor(),",
        "Tensor(),",
        ["golden"]),
    "experts forget the residual's gradient": (
        "autograd/experts.cpp",
        "gradients.push_back(dy);",
        "gradients.emplace_back();",
        ["golden"]),
    "the residual of GPT-2's feed-forward layer gets no gradient": (
        "autograd/operations/linear.cpp",
        "linear_backward_input(as_rows(dx), dpre, layers.fc_weight.data(), transpose);\n"
        "        return {dx, dy};",
        "linear_backward_input(as_rows(dx), dpre, layers.fc_weight.data(), transpose);\n"
        "        return {dx, Tensor{}};",
        ["golden"]),
    "a gated feed-forward layer leaves out the residual": (
        "autograd/operations/linear.cpp",
        "/*gated=*/true},\n             x, residual);",
        "/*gated=*/true},\n             x, Variable());",
        ["golden"]),
    "biases stand between the weights that are joined": (
        "models/layers.cpp",
        "  for (const Parameter& weight : weights.parts()) visit(weight);\n"
        "  if (!biases.defined()) return;\n"
        "  for (const Parameter& bias : biases.parts()) visit(bias);\n",
        "  for (std::size_t i = 0; i < weights.parts().size(); ++i) {\n"
        "    visit(weights.parts()[i]);\n"
        "    if (biases.defined()) visit(biases.parts()[i]);\n"
        "  }\n",
        ["joined_weights"]),
    "the cache has the queries of packed rows": (
        "models/key_value_cache.cpp",
        "queries, 2 * keys}",
        "0 * queries, 2 * keys}",
        ["same_bits"]),

    # ---- the hub's cache
    "a damaged reference leads out of the hub's cache": (
        "models/hub.cpp",
        "check(is_part(hash) && fs::is_directory(snapshot),",
        "check(fs::is_directory(snapshot),",
        ["hub"]),
    "a model of the hub hides a folder of its name": (
        "models/hugging_face.cpp",
        "!fs::exists(given) && is_hub_name(given) ?",
        "is_hub_name(given) ?",
        ["hub"]),

    # ---- chat templates
    "qwen3 keeps the thoughts of earlier turns": (
        "models/chat_template.cpp",
        "qwen3_answer(content, last, i > question)",
        "qwen3_answer(content, last, i + question + 1 > 0)",
        ["chat_template"]),
    "a tool's answer counts as a question": (
        "models/chat_template.cpp",
        'if (message.role == "user" && !of_tool) return i;',
        'if (message.role == "user" && (of_tool || !of_tool)) return i;',
        ["chat_template"]),
    "wide spaces are not stripped": (
        "models/tokenizers/utf8.cpp",
        "bool is_white_space(char32_t point) {\n",
        "bool is_white_space(char32_t point) {\n  if (point > 0x7f) return false;\n",
        ["chat_template"]),
    "a template is known by one of its statements": (
        "models/chat_template.cpp",
        "std::all_of(statements.begin()",
        "std::any_of(statements.begin()",
        ["chat_template"]),
    # ---- the properties of all families
    "config.json forgets the kind of angles": (
        "models/rope_config.cpp",
        "if (rope.angles != RopeAngles::exact) config",
        "if (rope.angles == RopeAngles::exact) return; else if (false) config",
        ["families"]),
    "a generated token has the position of the one before": (
        "models/decoder.h",
        "return cache != nullptr ? cache->length : 0;",
        "return cache != nullptr && cache->length > 0 ? cache->length - 1 : 0;",
        ["families"]),
    "a generated token's queries and keys are not normalized": (
        "models/decoder.cpp",
        "  if (!norm.defined()) {\n",
        "  if (!norm.defined() || qkv.shape()[1] == 1) {\n",
        ["families"]),
    # ---- packed documents
    "documents in a row share their attention": (
        "models/decoder.cpp",
        "pass.first_key = first_keys(starts, /*chunk=*/0);",
        "pass.first_key = Tensor();",
        ["documents"]),
    "rotated positions count from the row's start": (
        "models/decoder.cpp",
        "  positions.each = document_positions;\n",
        "",
        ["documents"]),
    "GPT-2's positions count from the row's start": (
        "models/gpt2/model.cpp",
        "if (pass.document_positions.defined()) return",
        "if (false) return",
        ["documents"]),
    "a row goes on with the document of the row before": (
        "models/documents.cpp",
        "const bool starts_here = place == 0 || ids",
        "const bool starts_here = i == 0 || ids",
        ["documents"]),

    # ---- RoPE by the sequence's length, windows, and GELU's forms
    "long factors are used for short sequences": (
        "kernels/rope/table.cpp",
        "const bool is_long = static_cast<double>(length) > longrope->original_context;",
        "const bool is_long = length > 0;",
        ["golden"]),
    "short factors are used for long sequences": (
        "kernels/rope/table.cpp",
        "return length > original ? original + 1 : 1;",
        "return length > original + 1000 ? original + 1 : 1;",
        ["golden"]),
    "longrope has no attention factor": (
        "models/rope_config.cpp",
        'scaling.number("attention_factor", usual)}',
        'scaling.number("attention_factor", usual / usual)}',
        ["golden"]),
    "dynamic scaling forgets the length": (
        "kernels/rope/table.cpp",
        "return std::max(length, static_cast<std::int64_t>(dynamic->original_context));",
        "return static_cast<std::int64_t>(dynamic->original_context);",
        ["golden"]),
    "a table of another length is kept": (
        "models/rotary_embedding.cpp",
        "RopeTable& table = tables_[length];",
        "RopeTable& table = tables_[0];",
        ["same_bits"]),
    "in generation the length is that of the new tokens": (
        "models/decoder.cpp",
        "if (cache != nullptr) positions.length = cache->capacity;",
        "if (cache != nullptr) positions.length = 0;",
        ["same_bits"]),
    "sequences of different lengths share a table": (
        "models/decoder.cpp",
        "rotary != nullptr && rotary->depends_on_length();",
        "rotary != nullptr && false;",
        ["same_bits"]),
    "a window is a token too long": (
        "kernels/attention/first_key.cpp",
        "position - window + 1)",
        "position - window)",
        ["golden"]),
    "every layer has a window": (
        "models/llama/config.cpp",
        "(!window_layers || std::count",
        "(true || std::count",
        ["golden"]),
    "cached queries see all keys": (
        "models/decoder.cpp",
        "*pass.cache, layer, first_key));\n}\n\nVariable attend(const",
        "*pass.cache, layer));\n}\n\nVariable attend(const",
        ["same_bits"]),
    "the exact form of gelu is tanh's forward": (
        "kernels/linear/cpu.cpp",
        "gelu_forward(isa, part, y, pre, form);",
        "gelu_forward(isa, part, y, pre, GeluForm::tanh);",
        ["golden"]),
    "the exact form of gelu is tanh's backward": (
        "kernels/linear/cpu.cpp",
        "gelu_backward(isa, part, dx, dx, pre, form);",
        "gelu_backward(isa, part, dx, dx, pre, GeluForm::tanh);",
        ["golden"]),

    # ---- Llama 4
    "layers with RoPE see all tokens": (
        "models/llama4/attention.cpp",
        "rope_ ? AttentionSpan::near : AttentionSpan::document",
        "AttentionSpan::document",
        ["golden"]),
    "chunks are counted from the row's start": (
        "models/decoder.cpp",
        "starts.defined() ? starts : Tensor::zeros(ids.shape(), DType::i32)",
        "Tensor::zeros(starts.defined() ? starts.shape() : ids.shape(), DType::i32)",
        ["golden", "documents"]),
    "chunks are counted from the first token that is not in the cache": (
        "models/decoder.cpp",
        "return first_keys(row_starts, chunk, pass.first_position(), window);",
        "return first_keys(row_starts, chunk, 0, window);",
        ["families", "golden"]),
    "a sequence of one chunk more needs no first keys": (
        "models/decoder.cpp",
        "if (pass.first_position() + ids.size(1) <= chunk + window) return",
        "if (pass.first_position() + ids.size(1) <= chunk + window + 1) return",
        ["families"]),
    "queries are normalized before they are rotated": (
        "models/llama4/attention.cpp",
        "  x = positions_->rotary(std::move(x), heads, pass.positions());\n  if (!qk_norm_) return x;\n",
        "  if (!qk_norm_ || pass.tokens < 0) return x;\n",
        ["golden"]),
    "RoPE's pairs are halves": (
        "models/llama4/attention.cpp",
        "rotary(config.rope, shape_of(config), RopePairs::interleaved)",
        "rotary(config.rope, shape_of(config), RopePairs::half_split)",
        ["golden"]),
    "no_rope_layers names the layers without RoPE": (
        "models/llama4/config.cpp",
        "return rope_layers[static_cast<std::size_t>(layer)] != 0;",
        "return rope_layers[static_cast<std::size_t>(layer)] == 0;",
        ["llama4", "golden"]),
    "the temperature's first step is a token late": (
        "models/llama4/config.cpp",
        "(position + 1) / config.floor_scale",
        "position / config.floor_scale",
        ["llama4", "golden"]),
    "layers with RoPE have a temperature": (
        "models/llama4/attention.cpp",
        "} else if (temperature_tuning_) {",
        "}\n  if (temperature_tuning_) {",
        ["golden"]),
    "the temperature's positions count from the row's start": (
        "models/llama4/attention.cpp",
        "positions_->temperature(std::move(q), heads_, pass.positions())",
        "positions_->temperature(std::move(q), heads_, TokenPositions{{.first = pass.first_position()}})",
        ["documents"]),
    "a token's weight multiplies its expert's result": (
        "models/llama4/model.cpp",
        ".weighed = WeighedInput::gate_up",
        ".weighed = WeighedInput::down",
        ["golden"]),
    "there is no shared expert": (
        "models/llama4/model.cpp",
        "          .shared_width = config.expert_width,\n",
        "",
        ["golden"]),
    "an empty moe_layers is as none": (
        "models/llama4/config.cpp",
        "if (!expert_layers) return",
        "if (!expert_layers || expert_layers->empty()) return",
        ["llama4"]),
    "files of the whole model are not found": (
        "models/llama4/weights.cpp",
        '          .outer_prefix = "language_model.",\n',
        "",
        ["llama4"]),
    "files with biases of Llama 4's routers are refused": (
        "models/llama4/weights.cpp",
        " || is_router_bias(tensor);",
        ";",
        ["hugging_face"]),
    "the vision model's layers count": (
        "models/weight_files.cpp",
        "if (names_.is_not_a_parameter(name)) continue;",
        "",
        ["llama4"]),

    # ---- tokenizers and models
    "of equal pairs the rightmost merges first": (
        "models/tokenizers/bpe_merge.cpp",
        "left > other.left",
        "left < other.left",
        ["bpe"]),
    "a queued pair is merged although one of the two has changed": (
        "models/tokenizers/bpe_merge.cpp",
        "symbols_[next.left] == next.left_id && symbols_[next.right] == next.right_id;",
        "symbols_[next.right] == next.right_id;",
        ["bpe"]),
    "unknown characters are fused though the file does not say so": (
        "models/tokenizers/bpe.cpp",
        "if (unknown_waits && !options_.fuse_unknown) symbols",
        "if (false) symbols",
        ["bpe"]),
    "a whole piece of the vocabulary is merged all the same": (
        "models/tokenizers/bpe.cpp",
        "if (options_.ignore_merges) {\n    if (const auto",
        "if (false) {\n    if (const auto",
        ["bpe"]),
    "an added token keeps the spaces after it as text": (
        "models/tokenizers/added_tokens.cpp",
        "while (token->takes_right && ",
        "while (false && ",
        ["tokenizer_golden"]),
    "an added token is found inside a word": (
        "models/tokenizers/added_tokens.cpp",
        "if (token->single_word && ",
        "if (false && ",
        ["tokenizer_golden"]),
    "threads agree before they do": (
        "models/tokenizers/bpe_tokenizer.cpp",
        "mark != job.marks.end() && mark->text == next) break;",
        "mark != job.marks.end()) break;",
        ["bpe"]),
    "\\s is PCRE2's": (
        "models/tokenizers/regex.cpp",
        'made += "\\\\p{White_Space}";',
        'made += "\\\\s";',
        ["bpe"]),
    "broken bytes become one U+FFFD": (
        "models/tokenizers/utf8.cpp",
        "if (!may_follow(i == 1 ? first : 0x80, next)) return {{0, i}, false};",
        "if (!may_follow(i == 1 ? first : 0x80, next)) return {{0, length}, false};",
        ["bpe"]),
    "NFC only decomposes": (
        "models/tokenizers/normalizers.cpp",
        "unicode_form(UTF8PROC_COMPOSE, true)",
        "unicode_form(UTF8PROC_DECOMPOSE, true)",
        ["tokenizer_golden"]),
    "every piece gets the space of the first": (
        "models/tokenizers/splitters.cpp",
        "(prepend_ == Prepend::first && text.at_start)",
        "(prepend_ == Prepend::first)",
        ["tokenizer_golden"]),
    "the template's token comes after the text": (
        "models/tokenizers/tokenizer_json.cpp",
        "auto& side = after_text ? parts.after : parts.before;",
        "auto& side = parts.after;",
        ["tokenizer_golden"]),
    "a block that runs again in backward counts its tokens again": (
        "models/routers.cpp",
        "if (recording_) offsets_of_pass_.push_back(routing.offsets);",
        "if (in_step_) (recording_ ? offsets_of_pass_ : offsets_of_step_).push_back(routing.offsets);",
        ["routers"]),
    "the counts of a micro-batch replace those of the one before": (
        "models/routers.cpp",
        "  offsets_of_step_.insert(offsets_of_step_.end(), ",
        "  offsets_of_step_.clear();\n  offsets_of_step_.insert(offsets_of_step_.end(), ",
        ["routers"]),
    "biases move although the routers have moved on to their old copies": (
        "models/routers.cpp",
        "  if (on_device.defined()) {",
        "  if (on_device.defined() && values.empty()) {",
        ["routers"]),
    "hf's loads are those of each layer": (
        "models/routers.cpp",
        "for (const Tensor& offsets : offsets_of_pass_) add_counts(sums, 0, offsets);",
        "add_counts(sums, 0, offsets_of_pass_.front());",
        ["routers"]),
    "lagged gives every layer the loads of the first": (
        "models/routers.cpp",
        "lagged ? counts_of_layer(last_.counts, layer) :",
        "lagged ? counts_of_layer(last_.counts, 0) :",
        ["routers"]),
    "the routers' losses are not scaled as the model's": (
        "models/routers.cpp",
        "terms->scale = step_.loss_scale;",
        "terms->scale = 1.0;",
        ["routers"]),
    "the router's weights are not divided by their sum": (
        "models/qwen3_moe/model.cpp",
        "config.normalized_weights ? RouterWeights::normalized_softmax",
        "false ? RouterWeights::normalized_softmax",
        ["golden"]),
    "mlp_only_layers have experts": (
        "models/qwen3_moe/config.cpp",
        "std::count(dense_layers.begin(), dense_layers.end(), layer) == 0",
        "layer >= 0",
        ["golden", "qwen3_moe"]),
    "the first of decoder_sparse_step layers has experts": (
        "models/qwen3_moe/config.cpp",
        "(layer + 1) % experts_every == 0",
        "layer % experts_every == 0",
        ["golden", "qwen3_moe"]),
    "an expert's up is read as its gate": (
        "models/qwen3_moe/weights.cpp",
        '{"gate_proj", "up_proj"}',
        '{"up_proj", "gate_proj"}',
        ["golden"]),
    "a shard that begins inside an expert is read from the expert's beginning": (
        "models/hugging_face.cpp",
        "flat.slice(from - begin, until - begin)",
        "flat.slice(0, until - from)",
        ["qwen3_moe"]),
    "the biases of routers are not saved": (
        "models/hugging_face.cpp",
        "for (const auto& [name, bias] : biases) infos.push_back({name, {.shape = bias.shape()}});",
        "const_cast<NamedTensors&>(biases).clear();",
        ["hugging_face"]),
}

BATCHES = [planting.Batch(
    {name: planting.Fault(path, old, new, [f"test_models_{test}" for test in tests])
     for name, (path, old, new, tests) in FAULTS.items()},
    folder="build/planted_faults", preset="release")]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
