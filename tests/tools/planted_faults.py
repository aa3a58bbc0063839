#!/usr/bin/env python3
"""Plants faults in the programs, one at a time, and sees their tests turn red.

  tests/tools/planted_faults.py           builds a copy of the sources below build/planted_faults,
                                          plants each fault there and runs tests that may see it
  tests/tools/planted_faults.py NAME...   only these
  tests/tools/planted_faults.py --check   only sees that every fault still fits the sources

A fault that no test notices is a gap in the tests: the program ends with 1 and names it.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

# Faults of a file that the same tests may notice, by name: text that occurs in the file exactly once, and
# what replaces it.
FAULTS = {
    ("tools/generate/growing_text.cpp", "text_batch"): {
        "a prompt's score is that of the token before": (
            "const std::int64_t rows = logits.size(0), first = read_ + 1 - rows;",
            "const std::int64_t rows = logits.size(0), first = read_ + 2 - rows;"),
        "a token is drawn before the prompt is read": (
            "  if (read_ < size()) return std::nullopt;\n",
            ""),
    },
    ("tools/serve/text_batch.cpp", "text_batch"): {
        "a cancelled text keeps its row": (
            "return text.cancelled();",
            "return text.cancelled() && false;"),
        "a text gets the first row of its pass": (
            "    first = last;\n",
            ""),
    },
    ("tools/serve/stop_text.cpp", "stop_text"): {
        "a stop text in two pieces is missed": (
            "open = std::max(open, open_stop(held_, stop));",
            "open = std::max(open, std::size_t{0} * open_stop(held_, stop));"),
        "a piece ends inside a character": (
            "std::size_t open = open_character(held_);",
            "std::size_t open = 0 * open_character(held_);"),
    },
    ("tools/http/http_server.cpp", "serve"): {
        "a long body is read": (
            "if (!own.too_long) own.body",
            "own.too_long = false;\n  own.body"),
    },
    ("tools/eval/run_task.cpp", "eval_tasks"): {
        "the gap of a sentence stays empty": (
            "question_of(prompt + choice, {entry.ending}, tokenizer)",
            "question_of(prompt + entry.choices[0], {entry.ending}, tokenizer)"),
    },
    ("tools/plan/json.cpp", "plan"): {
        "the groups of a plan have no bytes": (
            '{"state_bytes", one.state_bytes}',
            '{"state_bytes", 0}'),
    },
    ("tools/serve/completion_reply.cpp", "serve"): {
        "the first token of an echo is left out": (
            "  if (first) add(*first, Json(), Json());\n",
            "  static_cast<void>(first);\n"),
    },
    ("tools/serve/server.cpp", "serve"): {
        "all n texts have one seed": (
            "seed + static_cast<std::uint64_t>(i)",
            "seed + 0 * static_cast<std::uint64_t>(i)"),
    },
    ("tools/watch/step_watch.cpp", "watch"): {
        "each replica counts its weights": (
            "parts_.push_back({unit_of.at(shard.parameter.name()), &shard, saved[s]});",
            "parts_.push_back({unit_of.at(shard.parameter.name()), &shard, {0, shard.count()}});"),
        "the norm of an update is that of a sum": (
            "    scale(before_[i], before_[i], -1.0);\n",
            ""),
        "norms keep the loss scale": (
            ".gradient_norm = norm(kGradient) / loss_scale,",
            ".gradient_norm = norm(kGradient),"),
    },
    ("autograd/activation_watch.cpp", "watch"): {
        "a loss is an activation": (
            "if (output.rank() > 1) raise",
            "raise"),
    },
    ("autograd/context_attention.cpp", "random_mesh"): {
        "ranks that share out tokens see no attention": (
            "        watch->attention(queries, keys, scale, piece.of(first_key), group.number * q_of.heads);\n",
            ""),
    },
    ("tools/train/session.cpp", "watch"): {
        "ranks do not share their largest activations": (
            "  reduce_over_ranks({activations_->largest()}, \"watch\", Reduction::maximum);\n",
            ""),
        "every step is watched": (
            "every > 0 && step % every == 0,",
            "every > 0,"),
    },
    ("tools/replay/watched_rows.cpp", "replay"): {
        "every row is the first": (
            "return rank.source.load(rank.step, row, 1);",
            "return rank.source.load(rank.step, 0 * row, 1);"),
    },
    ("tools/train/prometheus.cpp", "metrics_server"): {
        "a label is not escaped": (
            "if (c == '\\\\' || c == '\"') result += '\\\\';",
            ""),
    },
    ("tools/train/metrics_server.cpp", "metrics_server"): {
        "the server keeps its first text": (
            "text_ = std::move(text); }",
            "if (text_.empty()) text_ = std::move(text); }"),
    },
    ("tools/train/meter.cpp", "metrics"): {
        "the last file is the slowest": (
            "if (ms > longest) slowest_file_ = file;",
            "slowest_file_ = file;"),
    },
    ("optim/adamw.cpp", "optimizer_dtypes"): {
        "the optimizer writes no copies": (
            "                       .copy = shard.copy,\n",
            ""),
        "random bits do not depend on the shard's place": (
            ".elements = shard.elements",
            ".elements = {}"),
    },
    ("optim/muon.cpp", "muon"): {
        "a dry run has no work of matrices": (
            "  log_work(\n      {.kind = Work::Kind::forward, .amount = newton_schulz_flops(matrix.size(0), matrix.size(1))});\n",
            ""),
    },
    ("tools/train/qk_clip.cpp", "qk_clip"): {
        "QK-clip takes the root of grouped queries too": (
            "model.shape().kv_heads == model.shape().heads ? 0.5 : 1.0",
            "0.5"),
        "QK-clip scales shared keys": (
            "&& cut.uses == 1;",
            "&& cut.uses >= 1;"),
        "QK-clip scales GPT-2's queries only": (
            "return 2 * cut.pieces;",
            "return cut.pieces;"),
    },
    ("tools/train/session.cpp", "qk_clip"): {
        "QK-clip leaves the copies": (
            "qk_clip_ ? Writes::masters : Writes::masters_and_copies",
            "Writes::masters_and_copies"),
    },
    ("autograd/activation_watch.cpp", "qk_clip"): {
        "all tensor ranks have the first heads": (
            "axis->rank() * heads_ / axis->ranks();",
            "0;"),
    },
    ("tools/data/batch_sizes.cpp", "batch_ramp"): {
        "rows between the stages of a ramp are skipped": (
            "first += count * stage.rows;",
            "first += count * rows_;"),
    },
    ("tools/train/parameter_groups.cpp", "muon"): {
        "muon has tables too": (
            "return matrices.contains(parameter.name()) ? group.settings : settings_of_rest(group);",
            "return parameter.shape().rank() > 1 ? group.settings : settings_of_rest(group);"),
    },
    ("optim/sgd.cpp", "optimizer_dtypes"): {
        "SGD writes no copies": (
            "  write_copies(copies);\n",
            ""),
    },
    ("sharding/plan/plan.cpp", "optimizer_dtypes"): {
        "bf16 masters lie in buffers of f32": (
            "placement.compute_dtype == placement.master_dtype;",
            "placement.compute_dtype == DType::f32;"),
    },
    ("sharding/plan/footprint.cpp", "optimizer_dtypes"): {
        "masters are predicted in f32": (
            "footprint.parameters += master_ * owned_trained_ + frozen;\n        return;",
            "footprint.parameters += 4 * owned_trained_ + frozen;\n        return;"),
    },
    ("tools/train/optimizer.cpp", "optimizer_dtypes"): {
        "moments are predicted in f32": (
            "return average + 2 * static_cast<std::int64_t>(size_of(settings.state_dtype));",
            "return average + 2 * kF32;"),
        "the seed of the run does not round": (
            ".seed = seed}",
            ".seed = 0 * seed}"),
    },
    ("optim/groups.cpp", "session"): {
        "every group has the first learning rate": (
            "update_unit(unit, learning_rates_[i], scale_);",
            "update_unit(unit, learning_rates_[0], scale_);"),
        "a skipped step is reported to the first group alone": (
            "  for (const Group& group : groups_) group.optimizer->step_was_skipped();\n",
            "  groups_.front().optimizer->step_was_skipped();\n"),
    },
    ("optim/groups.cpp", "resume"): {
        "the number of updates is restored for the first group alone": (
            "  for (const Group& group : groups_) group.optimizer->set_steps(steps);\n",
            "  groups_.front().optimizer->set_steps(steps);\n"),
    },
    ("tools/train/optimizer.cpp", "optimizer_groups"): {
        "all groups have the state of the section's rule": (
            "state_bytes_per_element(groups.settings_of(parameter), config.train);",
            "state_bytes_per_element(config.optimizer, config.train);"),
        "norms and biases of a group decay": (
            "    mine.decay = groups.decays(shard.parameter);\n",
            "    mine.decay = groups.of(shard.parameter).listed || mine.decay;\n"),
    },
    ("tools/train/parameter_groups.cpp", "optimizer_groups"): {
        "the head is no table": (
            "ends.push_back(model.units().back().get());",
            ";"),
        "the last block of a model with tied tables is a table": (
            "if (!ends.front()->at_both_ends()) ends",
            "ends"),
        "the last group that matches has a parameter": (
            "    const auto first = std::find_if(groups.begin(), groups.end(),",
            "    const auto first = std::find_if(groups.begin() + 1, groups.end(),"),
    },
    ("optim/ema.cpp", "ema"): {
        "an update that was skipped moves the average": (
            "scale(on_device_, of_update.tensor, 0.0);",
            "scale(on_device_, minus_one_, 0.0);"),
        "the average begins at zero": (
            "      average.copy_from(shard.data);\n",
            "      average.zero();\n"),
    },
    ("tools/train/session_evaluation.cpp", "ema"): {
        "the weights are lost to an evaluation of the average": (
            "    for (const auto& [master, values] : kept) write(master, values);\n",
            ""),
    },
    ("tools/train/run_state.cpp", "ema"): {
        "an export of the average has the weights": (
            'read_tensor(reader, averaged ? name + ".ema" : name, shard, shard.data);',
            "read_tensor(reader, name, shard, shard.data);"),
    },
    ("tools/config/optimizer_groups.cpp", "optimizer_groups"): {
        "the factor of the learning rate is not used": (
            "  draft.settings.learning_rate *= draft.learning_rate_factor;\n",
            ""),
    },
    ("kernels/grouped_matmul/cpu.cpp", "calculator"): {
        "a dry run reads the offsets of experts": (
            "  if (context().is_dry()) return std::vector<std::int32_t>(count);\n",
            ""),
    },
    ("kernels/attention/first_key.cpp", "calculator"): {
        "a dry run reads the first keys": (
            " || context().is_dry()",
            ""),
    },
    ("autograd/operations/travelling_rows.cpp", "tensor_parallel"): {
        "sums by rank are added before all have arrived": (
            "  axis_->wait(arrived_);\n",
            ""),
        "rows that are read whole may be under way": (
            "  if (!under_way_.empty()) axis_->wait(under_way_.back().event);\n",
            ""),
    },
    ("autograd/operations/divided.cpp", "tensor_parallel"): {
        "without a grid tensor ranks that share out the tokens of a context rank have no leaf": (
            "return std::max(std::int64_t{1}, token_leaves() / axis->ranks());",
            "return token_leaves() / axis->ranks();"),
    },
    ("tools/train/pipeline_passes.cpp", "pipeline"): {
        "a stage balances the loads of the stages so far": (
            "plan().is_last(stage) ? here.sent.counts : received.counts);",
            "here.sent.counts);"),
        "the counts of the stages before are dropped": (
            "counts[e] += others[e];",
            "counts[e] += 0 * others[e];"),
        "dropout has the position of the first micro-batch": (
            "    training.enter(pass.micro_batch);\n",
            "    training.enter(0);\n"),
        "a received message is read before it has come": (
            "  wait_for_communication(received_.done);\n",
            ""),
        "gradients of weights are left out": (
            "        here.deferred.run();\n",
            ""),
        "the passes of a unit are counted together": (
            "units[static_cast<std::size_t>(part) % units.size()]->start_pass();",
            "units[static_cast<std::size_t>(part) % units.size()]->name();"),
    },
    ("models/decoder.cpp", "adapter"): {
        "the dropout of adapters acts in no pass": (
            "const AdapterTraining scope(pass.training);",
            "const AdapterTraining scope(false);"),
        "the factors of adapters belong to no unit": (
            "    unit = std::make_unique<Unit>(unit->name(), parameters_of(*blocks_[i]));\n",
            "    unit = std::make_unique<Unit>(unit->name(), std::vector<Parameter>(unit->parameters()));\n"),
    },
    ("models/adapters.cpp", "adapter"): {
        "the base of an adapter is trained": (
            "parameter.set_trainable(false);",
            "parameter.set_trainable(true);"),
    },
    ("tools/train/run_state.cpp", "adapter_run"): {
        "a checkpoint of an adapter holds the base": (
            "    if (adapters_only && !parameter.in_adapter()) continue;\n",
            ""),
        "the fingerprint of the base is not kept": (
            "  if (!base.empty()) state[\"base\"] = base;\n",
            ""),
    },
    ("tools/export/merge.cpp", "adapter_run"): {
        "every expert is merged with the addition of the first": (
            "addition(weight, matrix_of(a, e), matrix_of(b, e))",
            "addition(weight, matrix_of(a, 0), matrix_of(b, 0))"),
        "the factor of the addition is left out of a merge": (
            "  scale(sum, sum, weight.adapter()->scaling);\n",
            ""),
        "a merge keeps the files' values of packed weights": (
            "weight.packed() ? unpacked(",
            "!weight.packed() ? unpacked("),
        "a merge leaves packed weights without an adapter as they are": (
            "  if (weight.adapter() == nullptr && !weight.packed()) return stored;\n",
            "  if (weight.adapter() == nullptr) return stored;\n"),
    },
    ("models/peft.cpp", "adapter_run"): {
        "the files of an adapter do not note how the base was held": (
            "  if (options.base == AdapterBase::nf4) metadata",
            "  if (options.rank == 0) metadata"),
    },
    ("models/shard_file.cpp", "adapter_run"): {
        "elements of a packed weight are read from its beginning": (
            "      copy_elements(values, tensors, first);\n      check_finite",
            "      copy_elements(values, tensors, 0 * first);\n      check_finite"),
    },
    ("sharding/plan/placement.cpp", "adapter"): {
        "packed weights are gathered in the compute dtype": (
            "    placement.compute_dtype = DType::u8;\n",
            ""),
    },
    ("tools/train/session.cpp", "fp8"): {
        "every rank has scales of its own": (
            "  reduce_over_ranks({fp8_->largest()}, \"fp8\", Reduction::maximum);\n",
            ""),
        "other weights of an evaluation change the scales": (
            "  if (fp8_) strategy_->at_every_write([this] { fp8_->forget_largest(); });\n",
            ""),
        "weights are gathered with the scales of the step before": (
            "  end_fp8_step();\n  update_parameters(sharded, numbers, sums.norm, sums.loss);\n",
            "  update_parameters(sharded, numbers, sums.norm, sums.loss);\n  end_fp8_step();\n"),
        "a scale follows weights from before they were clipped": (
            "      if (fp8_) fp8_->forget_largest();\n",
            ""),
    },
    ("optim/optimizer.cpp", "fp8"): {
        "SGD and Muon leave copies in 8 bits": (
            "    if (is_fp8(copy.dtype())) {\n",
            "    if (is_fp8(copy.dtype())) continue;\n    if (is_fp8(copy.dtype())) {\n"),
    },
    ("kernels/adamw/cpu.cpp", "fp8"): {
        "after an update that is skipped weights have the scale of the step before": (
            "(factors || is_fp8(t.copy.dtype()))",
            "factors.has_value()"),
    },
    ("tools/train/resolve_ranks.cpp", "fp8_blocks"): {
        "ranks have parts of blocks": (
            "channels % (ranks * kFp8Block) == 0",
            "channels % ranks == 0"),
        "rows with scales of blocks are planned in 8 bits": (
            ".fp8_rows = has_fp8_history(run.config.runtime)",
            ".fp8_rows = run.config.runtime.compute_dtype.fp8"),
        "experts have scales of blocks": (
            "check(!weight.stacked(),",
            "check(true || !weight.stacked(),"),
    },
    ("tools/train/resolve.cpp", "fp8_blocks"): {
        "weights with scales of blocks are gathered in 8 bits": (
            "  if (has_fp8_history(run.config.runtime)) {\n    for",
            "  if (run.config.runtime.compute_dtype.fp8) {\n    for"),
    },
    ("autograd/fp8.cpp", "fp8_blocks"): {
        "rows with scales of blocks are rounded before they are gathered": (
            "if (are_gathered(weight, role)) return values;",
            "if (are_gathered(weight, role) && values.numel() == 0) return values;"),
    },
    ("autograd/operations/travelling_rows.cpp", "fp8_blocks"): {
        "a weight's gradient has the rows of other ranks in bf16": (
            "return rounded(std::exchange(rows_, {}), Transpose::yes);",
            "return std::exchange(rows_, {});"),
    },
    ("tools/train/resolve_ranks.cpp", "fp8"): {
        "the scales of experts are not planned": (
            "std::ssize(adaptable_weights(*model)) * kFp8Roles",
            "std::ranges::count_if(adaptable_weights(*model), [](const Parameter& weight) { return !weight.stacked(); }) * kFp8Roles"),
    },
    ("models/adapters.cpp", "fp8"): {
        "experts are no linear layers": (
            "return !is_adaptable(weight); });\n  return weights;",
            "return !is_adaptable(weight) || weight.stacked(); });\n  return weights;"),
    },
    ("sharding/plan/placement.cpp", "fp8"): {
        "weights are gathered in bf16": (
            "    placement.window_dtype = DType::e4m3;\n",
            ""),
        "frozen weights that are held whole are in 8 bits": (
            "(kind.form == Form::rounded && placement.master_dtype",
            "(placement.master_dtype"),
        "whole masters are in 8 bits": (
            " && placement.master_dtype != placement.compute_dtype)",
            ")"),
        "whole weights stay in bf16": (
            "(kind.form == Form::rounded && placement.master_dtype",
            "(kind.form == Form::packed && placement.master_dtype"),
    },
    ("sharding/strategy/strategy.cpp", "overlap"): {
        "parts of an update do not wait for the passes before": (
            "  stream.wait(context().compute_stream().record());\n  for (int unit = 0;",
            "  for (int unit = 0;"),
        "a unit's gather is queued before its update": (
            "    stream.enqueue([write, unit] { write(unit); });\n"
            "    for (const UnitBucket& here : buckets) {\n"
            "      if (here.first_unit) here.group->update_queued(here.bucket);\n"
            "    }\n",
            "    for (const UnitBucket& here : buckets) {\n"
            "      if (here.first_unit) here.group->update_queued(here.bucket);\n"
            "    }\n"
            "    stream.enqueue([write, unit] { write(unit); });\n"),
        "masters are read while they are updated": (
            "  wait_for_last_update();\n  return shards_;",
            "  return shards_;"),
    },
    ("sharding/strategy/resident_parameters.cpp", "overlap"): {
        "a unit's forward pass does not wait for its update": (
            "  wait_for_update(wholes_[bucket].updated);\n",
            ""),
        "a gather does not wait for the update": (
            "  stream.wait(writer.record());\n",
            "  stream.wait(context().compute_stream().record());\n"),
    },
    ("optim/groups.cpp", "overlap"): {
        "averages of an update in parts stay": (
            "  if (ema_) ema_->update_unit(unit);\n",
            ""),
    },
    ("tools/train/resolve.cpp", "overlap"): {
        "muon's exchange may run under the next pass": (
            "check(group.settings.name != OptimizerKind::muon,",
            "check(group.settings.name != OptimizerKind::muon || true,"),
    },
    ("sharding/strategy/gathered_parameters.cpp", "fp8"): {
        "a group of ranks keeps weights in the compute dtype": (
            "Tensor::zeros({end / placement.reshard_ranks}, placement.window_dtype)",
            "Tensor::zeros({end / placement.reshard_ranks}, placement.compute_dtype)"),
    },
    ("tools/train/session_evaluation.cpp", "fp8"): {
        "an evaluation changes the scales": (
            "std::make_unique<Fp8Scope>(*fp8_, Fp8Scope::Keeps::nothing)",
            "std::make_unique<Fp8Scope>(*fp8_)"),
    },
    ("sharding/plan/traffic.cpp", "fp8"): {
        "gathers of 8 bits are planned in the compute dtype": (
            "gathered_(size(group.placement.window_dtype))",
            "gathered_(size(group.placement.compute_dtype))"),
        "the traffic of 8-bit scales is not planned": (
            "  if (plan.rounded_tensors > 0) add_all_reduce(plan.rounded_tensors, 4, all);\n",
            ""),
    },
    ("tools/train/session.cpp", "adapter_run"): {
        "a run does not read the adapter that it starts from": (
            "    if (!adapter.empty()) load_adapter(",
            "    if (adapter.empty()) load_adapter("),
    },
    ("tools/train/pipeline_passes.cpp", "continued_texts"): {
        "samples read the tied weights from before the update": (
            "  evaluates_ = !trains;\n",
            "  evaluates_ = true;\n"),
    },
    ("tools/train/session_evaluation.cpp", "continued_texts"): {
        "tensor ranks answer different questions": (
            "static_cast<int>(batch_rank_)",
            "world_.rank()"),
        "the right answers are those of one rank": (
            "    sum += of_rank.front();\n",
            "    sum = std::max(sum, of_rank.front());\n"),
    },
    ("tools/train/session.cpp", "continued_texts"): {
        "every stage counts the answers": (
            "  return counts_in_loss_ && strategy_->plan().token_cut(world_.rank()).rank == 0;\n",
            "  return strategy_->plan().token_cut(world_.rank()).rank == 0;\n"),
    },
    ("sharding/strategy/tied_ends.cpp", "pipeline"): {
        "the embedding overwrites the gradient of the head": (
            "    parameter.next_contribution();  // the next one adds\n",
            ""),
        "the head runs before its weights have come": (
            "  wait_for_communication(weights_done_);\n  if (!trains) return;\n",
            "  if (!trains) return;\n"),
        "the head writes over gradients on their way": (
            "  wait_for_communication(gradients_sent_);\n  sent_.clear();\n  for",
            "  for"),
        "the table has the gradient of one leaf of the head": (
            "      for (const Tensor& leaf : slot.gradients[i]) leaves.push_back(leaf.clone());\n",
            "      for (int j = 0; j < trained_[i].leaves; ++j) leaves.push_back(slot.gradients[i][0].clone());\n"),
    },
    ("sharding/plan/stages.h", "pipeline"): {
        "gradients are sent to stages that train nothing": (
            "return stage > first_trained;",
            "return stage > 0;"),
    },
    ("sharding/plan/traffic.cpp", "pipeline"): {
        "messages of gradients are not predicted": (
            "(pipeline.sends_gradient(stage) ? 1 : 0)",
            "0"),
        "counts of experts are predicted for trained stages only": (
            "(stage > 0 ? 1 : 0)",
            "(pipeline.sends_gradient(stage) ? 1 : 0)"),
    },
    ("sharding/plan/footprint.cpp", "pipeline"): {
        "the last stage's copy of tied weights is not predicted": (
            "  footprint.parameters += elements(TiedTensors::weights) * size(pipeline.message_dtype);\n",
            ""),
    },
    ("sharding/strategy/strategy.cpp", "pipeline"): {
        "the end of a micro-batch in one chunk is its end in all": (
            "    if (plan_.pipeline.chunk_of(group->plan().stage) == chunk) group->finish_micro_batch();\n",
            "    if (chunk >= 0) group->finish_micro_batch();\n"),
        "ranks split communicators off for their own stage alone": (
            "      make_exchange(group, communicators_);\n      make_reshard_exchange(group, communicators_);\n",
            ""),
    },
    ("models/routers.cpp", "pipeline"): {
        "a pass is balanced when its stage has routed": (
            "} else if (!step_.in_stages) {",
            "} else if (step_.tokens > 0) {"),
        "a stage counts as the first layers": (
            "add_counts(sums, chosen.layer, chosen.offsets);",
            "add_counts(sums, chosen.layer - chosen_in_step_.front().layer, chosen.offsets);"),
    },
    ("tools/config/kernel_options.cpp", "isa"): {
        "runtime.isa is read and forgotten": (
            "  matmul_options().isa = isa;\n",
            ""),
        "a dry run needs the instruction set": (
            "context().is_dry() ? best : ",
            ""),
        "a level that the CPU lacks is taken": (
            "cpu::has_isa(isa, best)",
            "cpu::has_isa(best, isa)"),
        "the order of cuDNN's sums is not set": (
            "  set_cudnn_order(config.kernels.cudnn_order);\n",
            ""),
    },
    ("tools/data/documents.cpp", "documents"): {
        "samples for fine-tuning are taken as documents": (
            "check(!keys_.empty() || !looks_like_sample(document),",
            "check(true || !looks_like_sample(document),"),
        "YAML's aliases are written out without end": (
            "    left_ -= bytes;\n",
            "    left_ -= bytes / 1000;\n"),
    },
    ("tools/config/find.cpp", "find"): {
        "a preset's name wins over a file's": (
            "if (std::filesystem::exists(name)) return",
            'if (std::filesystem::exists(name) && name.ends_with(".yaml")) return'),
        "overrides come before the preset's settings": (
            "settings.insert(settings.end(), overrides.begin(), overrides.end());",
            ""),
    },
    ("tools/config/synonyms.cpp", "synonyms"): {
        "any name that ends as an interval does is train's": (
            "if (std::find(keys.begin(), keys.end(), key) != keys.end()) return key;",
            "if (!keys.empty()) return key;"),
        "a hint that the book does not list": (
            '    {"n_layers", "model.layers"},\n',
            '    {"n_layers", "model.layers"},\n    {"depth", "model.layers"},\n'),
        "a hint names a key that does not exist": (
            '    {"module_fqns_per_model_part", "sharding.pipeline_stages"},\n',
            '    {"module_fqns_per_model_part", "sharding.stages"},\n'),
        "a hint for a schedule names a schedule that does not exist": (
            '    {"interleaved1f1b", "interleaved"},\n',
            '    {"interleaved1f1b", "interleaving"},\n'),
        "underscores in a whole number get no advice": (
            "if (text[i] == '_' &&",
            "if (text[i] == '-' &&"),
    },
    ("tools/config/read_key.cpp", "synonyms"): {
        "a hint for a value is not tried": (
            "key.parse(other->substr(0, other->find(' ')));",
            "key.parse(*other);"),
    },
    ("tools/train/run_folder.cpp", "run_folder"): {
        "a folder's name may be too long": (
            '    check(!code, "cannot make folder {}: {}", existing.string(), code.message());\n',
            ""),
    },
    ("tools/bench/compare.cpp", "compared"): {
        "a row runs with the kernels of its world": (
            "    choose_kernels(config_);\n",
            ""),
        "a row with fewer ranks runs on all": (
            "const int ranks = asked > 0 ? asked : world.size();",
            "const int ranks = std::max(asked, world.size());"),
        "a row's threads are not bound to cores": (
            "if (config_.runtime.pin) core_",
            "if (config_.runtime.pin && world.size() > 8) core_"),
        "rows on their way to experts count as predicted traffic": (
            "measure(world_.bytes_sent() - sent - expert_bytes_sent_);",
            "measure(world_.bytes_sent() - sent);"),
    },
    ("tools/bench/compared.cpp", "compared"): {
        "a row's settings change the rows after it": (
            "all.push_back({std::string(row), with_settings(base, row)});",
            "all.push_back({std::string(row), with_settings(all.empty() ? base : all.back().config, row)});"),
        "a row's vocabulary is that of its preset": (
            "resolve(with_batch_size(row.config, ranks));\n",
            "resolve([&] { Config c = with_batch_size(row.config, ranks); c.data.train.clear(); return c; }());\n"),
        "rows of another world are compared": (
            '"sharding.timeout"};',
            '"sharding.communicator"};'),
        "a row without threads has one": (
            "available_threads() / runtime.ranks);",
            "0 / runtime.ranks);"),
        "another dtype must have the same bits": (
            '"runtime.pin"};\n\n/// Keys of how',
            '"runtime.pin", "runtime.compute_dtype"};\n\n/// Keys of how'),
        "cuts without a grid must have the same bits": (
            "return config.sharding.grid == 0 || !sums_rows_alike(config, first);",
            "return !sums_rows_alike(config, first);"),
        "a cut that changes the batch ranks must have the same bits": (
            "return config.sharding.grid == 0 || !sums_rows_alike(config, first);",
            "return config.sharding.grid == 0;"),
    },
    ("tools/bench/compare.cpp", "bench_strategies"): {
        "tokens per second are those of the first row's batch": (
            "tokens_per_step(options.rows[i].config.data)",
            "tokens_per_step(options.rows[0].config.data)"),
    },
    ("tools/generate/growing_text.cpp", "generate"): {
        "a stop token is not among the ids": (
            "  return stopped_ ? std::nullopt",
            "  if (stopped_) ids_.pop_back();\n  return stopped_ ? std::nullopt"),
    },
    ("tools/generate/stop_tokens.cpp", "generate"): {
        "the model's own stop tokens are read from config.json only": (
            '{kGenerationConfig, "config.json"}',
            '{"config.json"}'),
        "the end of a turn does not end a text": (
            "  if (end.size() == 1) stop.insert(end.front());\n",
            ""),
    },
    ("tools/generate/score.cpp", "generate"): {
        "a token is scored by the logits after it": (
            "tokens_of(rows, first, last, 1))",
            "tokens_of(rows, first, last, 0))"),
    },
    ("tools/generate/inference.cpp", "generate"): {
        "generation ignores the run's strategy": (
            "  options.strategy = sharding.strategy;\n",
            ""),
        "generation computes in f32 whatever is asked": (
            ".compute_dtype = dtype};",
            ".compute_dtype = DType::f32};"),
    },
    ("tools/generate/generate.cpp", "generate"): {
        "a chat's prompt gets the tokenizer's special tokens too": (
            "chat ? job.tokenizer->encode(as_conversation(*chat, options.system, prompt.text))",
            "chat ? job.tokenizer->with_special_tokens(\n"
            "        job.tokenizer->encode(as_conversation(*chat, options.system, prompt.text)))"),
    },
    ("tools/generate/prompts.cpp", "generate"): {
        "a chat's system message is dropped": (
            'if (!system.empty()) messages.push_back({"system", system});',
            ""),
    },
    ("tools/launch/restarts.cpp", "launch"): {
        "a run that its configuration stops is started again": (
            "(refused || errors_ > 1)",
            "(errors_ > 1)"),
        "the wait between restarts does not grow": (
            "std::min(failures_ - 1, 30)",
            "0"),
        "the first failure takes fewer ranks": (
            "if (failures_ < 2 ||",
            "if ("),
    },
    ("tools/launch/launch.cpp", "launch"): {
        "a run with train.resume=never begins again at each restart": (
            'if (continues()) words.emplace_back("train.resume=auto");',
            ""),
        "mpirun waits eight minutes for a lost machine": (
            "  shorten_keepalive();\n",
            "  if (false) shorten_keepalive();\n"),
        "ranks end at the first signal": (
            "tree.signal(SIGUSR1);",
            "tree.signal(SIGTERM);"),
        "an mpirun that hangs is not told from a killed rank": (
            ".hung = hung};",
            ".hung = false};"),
    },
    ("tools/selftest/selftest.cpp", "selftest"): {
        "selftest does not compare weights": (
            "check(weights_of(config) == weights_,",
            "check(weights_of(config) == weights_ || true,"),
        "selftest takes a run that began again for one that continued": (
            'if (line.value("event", "") == "resume" && line["step"] == step) return;',
            "if (line.contains(\"event\") && step > 0) return;"),
    },
    ("tools/launch/rank_commands.cpp", "launch"): {
        "all ranks take the same GPU": (
            'fmt::format("LOCAL_RANK={}", rank)',
            'fmt::format("LOCAL_RANK={}", 0 * rank)'),
        "each rank looks for rank 0 at a port of its own": (
            'fmt::format("MASTER_PORT={}", port)',
            'fmt::format("MASTER_PORT={}", port + rank)'),
    },
    ("tools/launch/process_tree.cpp", "launch"): {
        "ranks outlive launch": (
            "  ::prctl(PR_SET_PDEATHSIG, SIGTERM);\n",
            ""),
        "orphans outlive their tree": (
            "  adopt_orphans(true);\n",
            ""),
        "orphans of later processes are adopted, and stay as zombies": (
            "  kill();\n  adopt_orphans(false);\n",
            "  kill();\n"),
    },
    ("tools/eval/evaluate.cpp", "eval"): {
        "bytes of text are counted from the first token, which is no target": (
            "corpus.read(1 + done, ids);",
            "corpus.read(done, ids);"),
        "eval does not tell documents apart": (
            "batch.document_starts);",
            "Tensor());"),
        "eval cuts windows whatever the run's rows": (
            "if (!options.rows && run) options.rows = run->data.rows;",
            ""),
        "the last sequences of the validation data are left out": (
            "first < loader.samples(); first += at_a_time",
            "first + at_a_time < loader.samples(); first += at_a_time"),
        "bits per byte are nats per byte": (
            "loss / std::numbers::ln2 /",
            "loss /"),
    },
    ("tools/train/description.cpp", "session"): {
        "the start of a run says nothing of heads that miss the tensor cores": (
            "if (!device.is_cpu() &&",
            "if (device.is_cpu() &&"),
    },
    ("tools/plan/figures.cpp", "plan"): {
        "several ranks of a configuration for one have no plan": (
            'suits ? config : variant_of(config, "fsdp");',
            "suits ? config : config;"),
        "a sweep's strategies are those of the first number of ranks": (
            "line.strategies = every_strategy(*line.figures);",
            "line.strategies = lines.empty() ? every_strategy(*line.figures) : lines[0].strategies;"),
        "a sweep raises the problem of one number of ranks": (
            "const bool some = std::any_of(",
            "const bool some = std::all_of("),
    },
    ("tools/plan/unit_work.cpp", "predicted_cuts"): {
        "products that log themselves count in their unit too": (
            "    if (travel_by_rank(parameter.tensor_axis())) continue;\n",
            ""),
        "each tensor rank has all heads": (
            "plan.context_ranks / tensor_ranks_)",
            "plan.context_ranks)"),
        "each tensor rank has all weights": (
            "parameter.held_shape().numel()",
            "parameter.numel()"),
        "sums that tensor ranks divide are products in 8 bits": (
            "weight.cut().divided != summed);",
            "weight.cut().divided == summed);"),
        "gradients of weights in a pass of their own cost nothing": (
            "run_or_defer([weights] { log_work(weights); });\n",
            ""),
    },
    ("tools/plan/search.cpp", "search"): {
        "tensor ranks leave the node": (
            "for (const int tensor : divisors(ranks_ / options_.nodes)) {",
            "for (const int tensor : divisors(ranks_)) {"),
        "context ranks are tried where fewer fit": (
            "      fitting_.push_back(cuts);\n",
            ""),
        "a pipeline has fewer micro-batches than stages": (
            "if (micro_batches_of(cuts) < cuts.pipeline) return;",
            "if (micro_batches_of(cuts) > cuts.pipeline) return;"),
        "rows that do not divide among the ranks are rounded down": (
            "return config_.data.batch_size % at_once == 0 ?",
            "return config_.data.batch_size > 0 ?"),
        "no schedule but 1f1b is tried": (
            "{.schedule = PipelineSchedule::zero_bubble},",
            ""),
        "gradients are reduced after each micro-batch": (
            "if (outcome == Outcome::fits) return true;",
            "if (outcome == Outcome::fits) found_.pop_back();"),
        "experts are not shared out": (
            "cuts.pipeline = pipeline, cuts.expert = expert;",
            "cuts.pipeline = pipeline;"),
        "nothing is computed again": (
            'keys.emplace_back("sharding.activation_checkpointing=full");\n      consider_strategies(one, cuts, keys);',
            'keys.emplace_back("sharding.activation_checkpointing=full");'),
        "hsdp is left out next to cuts": (
            'if (tries("hsdp", size)) return true;',
            "if (size == 0) return true;"),
    },
    ("tools/plan/cuts.cpp", "search"): {
        "zero_bubble waits as long as 1f1b": (
            "before += forward + (fills ? 0.0 : backward);",
            "before += forward + backward;"),
        "the bound forgets the tensor ranks": (
            "const double sharers = cuts.tensor * cuts.context;",
            "const double sharers = cuts.context;"),
        "the bound counts one micro-batch": (
            "static_cast<double>(micro_batches) * work[rank]",
            "work[rank]"),
    },
    ("tools/plan/figures.cpp", "predicted_cuts"): {
        "a step's exposed time is that of the first stage": (
            "for (const Timeline& one : stages) {",
            "for (const Timeline& one : {stages.front()}) {"),
    },
    ("tools/eval/question.cpp", "continued_texts"): {
        "a rank without a question counts its answer": (
            "== question.label && has_one) ++right;",
            "== question.label) ++right;"),
    },
    ("tools/train/runner.cpp", "continued_texts"): {
        "questions are answered after every line": (
            "(step == train.steps || (train.hellaswag_every > 0 && step % train.hellaswag_every == 0));",
            "true;"),
        "samples take a batch of the training": (
            "  const std::vector<ContinuedText> samples = data_.samples->of(session_.model());\n",
            "  const std::vector<ContinuedText> samples = data_.samples->of(session_.model());\n"
            "  position_.batches += 1;\n"),
    },
    ("tools/train/continued_texts.cpp", "continued_texts"): {
        "samples are drawn by a fixed seed": (
            "static_cast<std::uint64_t>(config.sample.seed)",
            "std::uint64_t{0}"),
        "a sample's text begins after its prompt": (
            "samples.push_back({prompts_[i], prompts_[i] + ",
            "samples.push_back({prompts_[i], "),
        "the console cuts a sample inside a character": (
            "    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;\n",
            ""),
        "control characters of a sample reach the log": (
            "text += is_control && c != '\\t' ? '?' : c;",
            "text += is_control && c == '\\v' ? '?' : c;"),
    },
    ("tools/train/lengths.cpp", "lengths"): {
        "the last part of an epoch is no step": (
            "ceil_div(epochs * samples, run.config.data.batch_size);",
            "epochs * samples / run.config.data.batch_size;"),
        "rows per rank are rows of all ranks": (
            "config.data.batch_size = rows * batch_ranks(config, ranks);",
            "config.data.batch_size = rows + 0 * ranks;"),
    },
    ("tools/data/samples.cpp", "samples"): {
        "the token that ends an answer is not trained": (
            "    marks.push_back(kTrained);\n",
            "    marks.push_back(0);\n"),
        "an answer is trained from the token after its first": (
            "for (std::size_t i = token_at(begin); i < last; ++i)",
            "for (std::size_t i = token_at(begin) + 1; i < last; ++i)"),
    },
    ("tools/data/prepare.cpp", "samples"): {
        "marks of earlier data stay next to new tokens": (
            'entry.path().extension() == ".marks"',
            'entry.path().extension() == ".none"'),
    },
    ("tools/data/row_source.cpp", "samples"): {
        "a batch has all of a sample as targets": (
            "(marks[i] & kTrained) == 0",
            "false"),
    },
    ("tools/data/document_rows.cpp", "samples"): {
        "a piece without an answer fills a row": (
            "    if (piece.targets > 0) take(piece);\n",
            "    if (piece.tokens > 0) take(piece);\n"),
    },
    ("tools/data/row_source.cpp", "preference"): {
        "a rejected answer sees the chosen one": (
            "place + static_cast<std::int32_t>(chosen_tokens));",
            "place);"),
    },
    ("tools/data/document_rows.cpp", "preference"): {
        "a pair longer than a row is cut": (
            "piece.tokens == row_length && !of_pairs;",
            "piece.tokens == row_length;"),
        "the loss of pairs is divided by the number of their tokens": (
            "  if (has_pairs()) return std::ssize(row(index));\n",
            ""),
    },
    ("tools/data/samples.cpp", "preference"): {
        "the first token of an answer without a prompt is predicted from the answer before": (
            "    token = static_cast<std::int32_t>(without_marks(static_cast<TokenId>(token)));\n",
            ""),
    },
    ("tools/train/reference.cpp", "preference"): {
        "a reference of another model is taken": (
            '  check_same("model", model);\n',
            ""),
        "a reference of other pairs is taken": (
            '  check_same("pairs", pairs_text(rows));\n',
            ""),
    },
    ("tools/data/mark_file.cpp", "samples"): {
        "marks of any file are taken for those of the tokens": (
            "  check(header[2] == tokens,",
            "  check(header[2] >= 0,"),
    },
    ("tools/data/teacher_file.cpp", "teacher_file"): {
        "a teacher's answers to other tokens are taken": (
            "header_.tokens == tokens.size() && header_.hash == hash_of_tokens(tokens),",
            "header_.tokens == tokens.size(),"),
        "an id that comes twice is taken": (
            "check(twice == used.end(),",
            "check(twice == used.end() || *twice > 0,"),
        "places in any order are taken": (
            "log_probabilities.end(), likelier),",
            "log_probabilities.end(), likelier) || token >= 0,"),
    },
    ("tools/data/document_windows.cpp", "teacher_scores"): {
        "windows of a long document do not overlap": (
            "overlap = length / 2;",
            "overlap = 0 * length;"),
        "the teacher reads a rejected answer behind the chosen one": (
            "(own[i] & kBegins) != 0",
            "(own[i] & (kBegins | kRejected)) == kBegins"),
        "a document ends with each of its windows": (
            "window.ends_document = window.first + window.tokens == end;",
            "window.ends_document = window.first + window.tokens <= end;"),
    },
    ("tools/generate/teacher_scores.cpp", "teacher_scores"): {
        "a document's last token predicts the first one of the vocabulary": (
            "result.push_back(kIgnoreIndex);",
            "result.push_back(0);"),
        "each piece of a window is its first": (
            "tokens_.read(window.first + begin, ids);",
            "tokens_.read(window.first + 0 * begin, ids);"),
        "the document token of the run is ignored": (
            "    if (run) options.document_token = run->data.document_token;\n",
            "    if (run) options.document_token.clear();\n"),
        "a file of documents of one token is written": (
            "check(next_tokens_ > 0,",
            "check(next_tokens_ >= 0,"),
    },
    ("tools/generate/teacher_records.cpp", "teacher_scores"): {
        "an empty place has an id": (
            "      if (value.bits == kNoProbability.bits) records.ids[i] = 0;\n",
            ""),
        "a diverged model is a teacher": (
            "check(std::isfinite(row.of_largest),",
            "check(std::isfinite(row.of_largest) || true,"),
    },
    ("tools/generate/token_scores.cpp", "teacher_scores"): {
        "of equal logits the largest id comes first": (
            "(of_a == of_b && a < b)",
            "(of_a == of_b && a > b)"),
    },
    ("tools/data/soft_targets.cpp", "soft_targets"): {
        "the teacher's part is not divided by its sum": (
            "weight * (probability(k) / sum);",
            "weight * probability(k);"),
        "the next token loses the teacher's share of it": (
            "      of_next += share;\n",
            ""),
        "a token without a teacher keeps the next token's share alone": (
            "used == 0 ? 1.0 : 1.0 - weight;",
            "1.0 - weight;"),
    },
    ("tools/data/row_source.cpp", "distill"): {
        "a record is taken for the token before": (
            "corpus_.read_teachers(first, {ids, log_probabilities});",
            "corpus_.read_teachers(first + 1, {ids, log_probabilities});"),
        "the ends of rows have no soft targets": (
            "  rows.soft_classes.resize(end * static_cast<std::size_t>(soft_targets()), kIgnoreIndex);\n",
            ""),
    },
    ("tools/data/token_corpus.cpp", "distill"): {
        "teacher files of other tokens are taken": (
            "    teacher.check_tokens(tokens);\n",
            ""),
    },
    ("tools/train/session.cpp", "distill"): {
        "a step trains on next tokens alone": (
            "model_->loss(batch.inputs, batch.loss_targets(), numbers.loss_factor,",
            "model_->loss(batch.inputs, batch.targets, numbers.loss_factor,"),
        "context ranks lose the teacher": (
            "          .soft = {own(rows.soft.classes), own(rows.soft.weights)}};",
            "          };"),
    },
    ("tools/train/pipeline_passes.cpp", "distill"): {
        "a pipeline trains on next tokens alone": (
            "batch.loss_targets()",
            "batch.targets"),
    },
    ("tools/data/first_fit.cpp", "document_rows"): {
        "a piece goes to the last row with room in its half": (
            "    node *= 2;\n    if (free_[node] < tokens) ++node;\n",
            "    node = 2 * node + 1;\n    if (free_[node] < tokens) --node;\n"),
    },
    ("tools/data/row_source.cpp", "document_rows", "rows_train"): {
        "packed documents see those before them in the row": (
            "    rows.document_starts.resize(rows.inputs.size(), place);\n",
            "    rows.document_starts.resize(rows.inputs.size(), 0);\n"),
        "the targets of a row of documents are counted as a window's": (
            "  if (document_rows_) return document_rows_->loss_terms(place_in_epoch(sample));\n",
            ""),
    },
    ("tools/data/row_source.cpp", "document_rows"): {
        "the empty places of a row are predicted": (
            "  rows.targets.resize(end, kIgnoreIndex);\n",
            "  rows.targets.resize(end, *document_token_);\n"),
    },
    ("tools/data/document_rows.cpp", "document_rows"): {
        "a document ends where a piece of the corpus that is read ends": (
            "      if ((starts && !rejected) || is_full) end_piece",
            "      if ((starts && !rejected) || is_full || i == 0) end_piece"),
    },
    ("tools/data/decompression.cpp", "packed_inputs"): {
        "a truncated archive is a shorter text": (
            "      if (rest.empty()) fail_truncated(blocks_);\n",
            "      if (rest.empty()) return 0;\n"),
        "only the first member of an archive is read": (
            "if (rest.empty() && between_members_) return 0;",
            "if (between_members_) return 0;"),
    },
    ("tools/data/table_source.cpp", "packed_inputs"): {
        "a script that fails has read the whole table": (
            "      if (status != 0) fail(\"{}\", reason(status));\n",
            ""),
    },
    ("tools/data/input_files.cpp", "packed_inputs"): {
        "the files of a data set that are here are all": (
            "  check(split.files.size() == split.expected,",
            "  check(split.files.size() <= split.expected,"),
    },
    ("tools/data/mixture.cpp", "mixture"): {
        "the row that may come first comes first": (
            "jobs_[i].before < jobs_[chosen].before",
            "jobs_[i].from < jobs_[chosen].from"),
        "a source may be ahead of its share": (
            "      if (jobs_[i].from > row_) continue;\n",
            ""),
        "sources begin again in each phase": (
            "  return {source, phase.before[source] + number};",
            "  return {source, number};"),
    },
    ("tools/data/token_file.cpp", "token_file"): {
        "the upper bits of a file's tokens are not read": (
            "  return (std::int64_t{header[3]} << kLowerBits) + header[2];",
            "  return header[2];"),
    },
    ("tools/data/prepare.cpp", "documents"): {
        "documents of a killed run are not known": (
            "    spool.for_each_hash([&](std::uint64_t hash) { odd_.add_earlier(hash); });\n",
            ""),
    },
    ("tools/train/runner.cpp", "mixture_train"): {
        "validation sources count alike, however many tokens they have": (
            "    const auto weight = static_cast<double>(terms);\n",
            "    const double weight = 1.0;\n    all_terms += 1 - terms;\n"),
    },
    ("tools/data/token_spool.cpp", "token_spool"): {
        "a spool's counts are believed whatever its files hold": (
            "    return code ? 0 : static_cast<std::int64_t>(bytes) / width;\n",
            "    return (code ? 0 : static_cast<std::int64_t>(bytes) / width) + 1000;\n"),
        "a spool's documents may end anywhere": (
            "check(first <= last && last <= totals_.tokens,",
            "check(first <= last,"),
    },
    ("sharding/plan/plan.cpp", "elastic"): {
        "elastic: micro-batches are added one after another": (
            "  return std::countr_zero(static_cast<unsigned>(options.micro_batches)) - 1;",
            "  return 0;"),
    },
    ("sharding/strategy/partial_sums.cpp", "elastic"): {
        "elastic: a waiting sum is forgotten": (
            "for (int level = 0; level < std::min(waiting, levels); ++level) {",
            "for (int level = 1; level < std::min(waiting, levels); ++level) {"),
        "elastic: a sum waits on the wrong level": (
            "queue_accumulation(of(waiting, b), reduced, /*first=*/true);",
            "queue_accumulation(of(0, b), reduced, /*first=*/true);"),
    },
    ("sharding/plan/footprint.cpp", "elastic"): {
        "elastic: partial sums are not in the plan": (
            "4 * plan_.partial_sums * owned_trained_;",
            "0 * plan_.partial_sums * owned_trained_;"),
    },
    ("sharding/plan/plan.h", "elastic"): {
        "elastic: a rank adds up its losses before the sum over ranks": (
            "return elastic || grid ? micro_batches : 1;",
            "return 1;"),
    },
    ("models/routers.cpp", "elastic"): {
        "elastic: routers' losses are added one after another": (
            "passes_[static_cast<std::size_t>(layer)] % step_.losses;",
            "0 * passes_[static_cast<std::size_t>(layer)];"),
    },
    ("tools/train/session.cpp", "elastic"): {
        "elastic: a rank has neighbouring micro-batches": (
            "source.load(step, micro_batch(i) * rows, rows)",
            "source.load(step, (batch_rank_ * run_.config.data.accumulation_steps + i) * rows, rows)"),
        "elastic: dropout is drawn by the rank's own number of a micro-batch": (
            "static_cast<std::uint64_t>(micro_batch(i))};",
            "static_cast<std::uint64_t>(i)};"),
    },
    ("sharding/plan/placement.cpp", "elastic"): {
        "elastic: 16-bit sums are allowed": (
            "return rule.reduce_dtype.value_or(DType::f32) != DType::f32;",
            "return rule.reduce_dtype.value_or(DType::f32) == DType::f64;"),
    },
    ("tools/train/resume.cpp", "elastic"): {
        "elastic: a run continues with another number of micro-batches": (
            ' || key == "train.elastic") return false;',
            ") return false;"),
    },
    ("tools/train/progress.cpp", "console"): {
        "the bar ignores the width of the terminal": (
            "  return known ? size.ws_col : 80;",
            "  return known && size.ws_col > 80 ? size.ws_col : 80;"),
    },
    ("tools/train/log_file.cpp", "console"): {
        "a run that continues starts a new log": (
            "std::ios::app",
            "std::ios::trunc"),
    },
    ("tools/train/run_folder.cpp", "console"): {
        "the log of an earlier run stays among the files of the new one": (
            '"metrics.jsonl", "log.txt", "profile"',
            '"metrics.jsonl", "profile"'),
    },
    ("tools/train/runner.cpp", "console"): {
        "a skipped step is no event": (
            "  if (!result.finite) {\n    event(",
            "  if (result.finite && result.diverged) {\n    event("),
    },
    ("tools/train/continuing.cpp", "console"): {
        "the command that continues would start again": (
            'config.train.resume == "auto" ? "" : " --resume"',
            '""'),
        "ranks that tessera has started would continue by torchrun": (
            "if (!launch.command.empty()) command = launch.command;",
            ""),
    },
    ("tools/train/tensorboard.cpp", "tensorboard"): {
        "TensorBoard's checksums are not masked": (
            "std::rotr(crc, 15) + 0xa282ead8u",
            "crc"),
        "large numbers lose bits in TensorBoard's file": (
            "(value & 0x7f) | 0x80)",
            "(value & 0x3f) | 0x80)"),
        "TensorBoard keeps steps that a resumed run repeats": (
            "  if (continued_step == 0) return;",
            "  if (continued_step >= 0) return;"),
    },
    ("tools/train/run_folder.cpp", "tensorboard"): {
        "TensorBoard's files of an earlier run stay": (
            "  for (const fs::path& name : tensorboard_files(path_)) move_to_earlier(name);",
            ""),
    },
    ("tools/report/report.cpp", "report"): {
        "text of a run can end the report's script": (
            "c == '<' ? text += \"\\\\u003c\" : text += c;",
            "text += c;"),
        "a thinned report loses the largest norm": (
            "    if (has_norm) line[kNorm] = largest;\n",
            ""),
        "the report stops at a line that is being written": (
            "    if (file.eof()) break;",
            "    if (text.empty()) break;"),
    },
    ("tools/train/session.cpp", "replica_check"): {
        "replicas are never compared": (
            "if (every > 0 && step % every == 0 &&",
            "if (every > 0 && step % every == -1 &&"),
    },
    ("tools/train/replica_check.cpp", "replica_check"): {
        "half of the replicas are a majority": (
            "if (2 * most->second.size() <= ranks.size()) {",
            "if (2 * most->second.size() < ranks.size()) {"),
        "replicas compare no weights": (
            "      add(masters, shard->data);\n",
            ""),
        "replicas of hsdp are all ranks": (
            "plan.mesh.group_along(rank, plan.groups[g].placement.replicate)",
            "plan.mesh.group_along(rank * 0, plan.groups[g].placement.replicate)"),
    },
    ("tools/program/stop.cpp", "mpi"): {
        "a second signal counts only if it is the same": (
            "  std::signal(SIGINT, SIG_DFL);\n  std::signal(SIGTERM, SIG_DFL);\n",
            ""),
    },
    ("tools/watch/nonfinite.cpp", "nonfinite"): {
        "weights are not named": (
            "if (parameter.is_open() && contains(parameter.data(), tensor)) {",
            "if (parameter.name().empty()) {"),
        "ranks do not agree on the first finding": (
            "  return text_of_first_rank(text, world);\n",
            "  return text;\n"),
    },
    ("tools/watch/operation_place.cpp", "nonfinite"): {
        "a backward pass comes before the forward pass": (
            "update ? 0 : place.micro_batch, place.phase,",
            "update ? 0 : place.micro_batch, -static_cast<int>(place.phase),"),
    },
    ("tools/train/session.cpp", "nonfinite"): {
        "an observed step changes the weights": (
            "  queue_sums(sharded, inputs);\n  sharded.update([] {}, Writes::masters_and_copies);\n",
            "  const Sums sums = queue_sums(sharded, inputs);\n"
            "  update_parameters(sharded, numbers, sums.norm, sums.loss);\n"),
    },
    ("tools/replay/recorded_run.cpp", "replay"): {
        "a replay forgets the batches that a rollback left out": (
            'batches_ahead_[step] = line.at("batches").get<std::int64_t>() - step;',
            "batches_ahead_[step] = 0;"),
        "a replay begins with the checkpoint behind the step": (
            "if (checkpoint.step >= step ||",
            "if (checkpoint.step > step ||"),
    },
    ("tools/replay/replayed_rank.cpp", "replay"): {
        "a replay is not compared with the run": (
            "check(now == recorded->second,",
            "check(now == now,"),
    },
    ("tools/replay/bisect.cpp", "replay"): {
        "a tensor that is read counts as written": (
            ".before = !written}",
            ".before = false}"),
    },
    ("tools/watch/spikes.cpp", "replay"): {
        "the mean is that of all losses": (
            "  if (last_.size() > kLosses) last_.pop_front();\n",
            ""),
    },
    ("tools/train/runner.cpp", "resume"): {
        "a rollback takes the same batches again": (
            "  position_.batches = batches;\n",
            ""),
        "a checkpoint that one rank cannot read is taken": (
            "[](const auto& rank) { return rank[0] == 1; })) {",
            "[](const auto&) { return true; })) {"),
        "a skipped step is healthy": (
            "checkpointer_.save(position_.step, result.finite,",
            "checkpointer_.save(position_.step, true,"),
    },
    ("tools/train/step_profile.cpp", "profile"): {
        "a profile goes on after its last step": (
            "  if (recording_ && step >= config_.profile.last) stop_recording();",
            "  if (recording_ && step > config_.profile.last) stop_recording();"),
        "a profile of steps that a run does not reach is lost": (
            "  if (recording_ && run_has_ended) stop_recording();",
            "  if (recording_ && run_has_ended && complete_) stop_recording();"),
    },
    ("tools/train/memory_profile.cpp", "profile"): {
        "blocks from before the profile count twice": (
            "if (live.erase(event.address) == 0) older",
            "if (live.erase(event.address) > 5) older"),
    },
    ("tools/eval/tasks.cpp", "eval_tasks"): {
        "examples of every subject come before a question": (
            "if (example.group != entry.group) continue;",
            ""),
        "hellaswag's marks stay in its texts": (
            'replaced(replaced(titled, mark, ""), spaces, " ");',
            'replaced(titled, spaces, " ");'),
    },
    ("tools/eval/run_task.cpp", "eval_tasks"): {
        "acc_norm counts bytes instead of characters": (
            "(static_cast<unsigned char>(c) & 0xc0) != 0x80;",
            "c != 0;"),
        "a long prompt keeps its beginning": (
            "tokens.erase(tokens.begin(), tokens.begin() + over);",
            "tokens.erase(tokens.end() - over, tokens.end());"),
    },
    ("tools/eval/task_scores.cpp", "eval_tasks"): {
        "a group's error is that of all questions": (
            "  for (std::size_t i = 0; i < result.metrics.size(); ++i) {\n"
            "    result.all.scores[i].error = pooled_error(result.groups, i);\n"
            "  }\n",
            ""),
    },
    ("tools/eval/evaluate.cpp", "eval_tasks"): {
        "the loss of all sources is the mean of their losses": (
            "    all.loss += source.loss;\n    all.tokens += source.tokens;",
            "    all.loss += source.mean();\n    all.tokens += 1;"),
    },
    ("tools/eval/question.cpp", "eval_tasks"): {
        "all choices keep the context that the longest leaves": (
            "std::min(count(question.context), model_context + 1 - count(ending));",
            "std::min(count(question.context), model_context + 1 - count(question.endings.back()));"),
    },
    ("tools/eval/question.cpp", "eval"): {
        "an answer is chosen by the sum over its tokens": (
            "log_likelihoods[i] / lengths[i]",
            "log_likelihoods[i]"),
        "an ending is scored one token late": (
            "for (std::int64_t i = first; i < last; ++i) sum",
            "for (std::int64_t i = first + 1; i < last + 1; ++i) sum"),
    },
    ("tools/train/session.cpp", "session"): {
        "a skipped step advances Adam's bias correction": (
            "if (!finite) optimizer_->step_was_skipped();",
            ""),
        "the clipping threshold grows with the loss scale": (
            "{.max_norm = run_.config.optimizer.clip_norm,",
            "{.max_norm = run_.config.optimizer.clip_norm * numbers.loss_scale,"),
        "the learning rate of step s is that of step s + 1": (
            "optimizer_->learning_rates(step - 1)",
            "optimizer_->learning_rates(step)"),
        "the loss is divided by all targets, valid or not": (
            "const std::int64_t targets = source.loss_terms(step, 0, batch_rows(step, source));",
            "const std::int64_t targets =\n"
            "      std::max(source.loss_terms(step, 0, batch_rows(step, source)),\n"
            "               run_.config.data.batch_size * run_.config.data.sequence_length);"),
        "training does not tell documents apart": (
            "                       batch.document_starts, objective_of(losses",
            "                       Tensor(), objective_of(losses"),
    },
    ("tools/train/session_evaluation.cpp", "session"): {
        "evaluation records a graph": (
            "  const NoGradient no_gradient;\n",
            ""),
        "the evaluation weights batches by rows": (
            "totals[n] += numbers[n] * static_cast<double>(targets);",
            "totals[n] += numbers[n] * static_cast<double>(count) * all_targets / rows;"),
        "validation does not tell documents apart": (
            "batch.document_starts, objective);",
            "Tensor(), objective);"),
    },
    ("tools/train/run_state.cpp", "resume"): {
        "the learning rate is one step behind after a resume": (
            "return {.position = {.step = manifest.step,",
            "return {.position = {.step = manifest.step - 1,"),
        "the data position is one batch ahead after a resume": (
            '.batches = count_of(state, "batches")},',
            '.batches = count_of(state, "batches") + 1},'),
        "the optimizer's step is lost": (
            'session.optimizer().set_steps(count_of(state, "updates"));',
            ""),
        "the optimizer's moments are lost": (
            "    read_tensor(reader, name, shard, tensor);",
            "    read_tensor(reader, name, shard, Tensor::zeros(tensor.shape(), tensor.dtype()));"),
        "the history of 8-bit scales is lost": (
            '->has_history() && state.contains("fp8")) {',
            '->has_history() && state.contains("fp9")) {'),
        "a run with scales of blocks takes a history": (
            '->has_history() && state.contains("fp8")) {',
            '->has_history() | state.contains("fp8")) {'),
        "the routers' biases are lost": (
            "if (!biases[layer].empty()) routers",
            "if (false) routers"),
        "the routers' last counts are lost": (
            '{.counts = state.at("counts").get<std::vector<std::int64_t>>(),',
            "{.counts = {},"),
    },
    ("tools/train/run_state.cpp", "reshard"): {
        "the data position is not saved": (
            "state_json(position.batches, ",
            "state_json(position.step, "),
        "the loss scale is lost": (
            "if (session.scaler() && state.contains(",
            "if (false && state.contains("),
    },
    ("sharding/strategy/strategy.cpp", "reshard"): {
        "replicas save the same part": (
            "share_of(shard.count(), replica * tensors + tensor, group.replicas * tensors)",
            "share_of(shard.count(), 0, 1)"),
        "tensor ranks each save the whole of what all of them hold": (
            "share_of(shard.count(), replica * tensors + tensor, group.replicas * tensors)",
            "share_of(shard.count(), replica, group.replicas)"),
    },
    ("tools/train/checkpoint_writer.cpp", "reshard"): {
        "a checkpoint's tensors are not copied": (
            "copies_.push_back(copy_on_host(tensor.values));",
            "copies_.push_back(tensor.part.name.empty() ? copy_on_host(tensor.values) : tensor.values);"),
    },
    ("tools/train/checkpointer.cpp", "reshard"): {
        "a rank's problem does not stop the checkpoint": (
            'check(problem.empty(), "{}", problem);',
            'check(problem.empty() || true, "{}", problem);'),
    },
    ("tools/train/metrics.cpp", "resume"): {
        "metrics of steps that are repeated stay": (
            'if (json["step"].get<std::int64_t>() <= last) kept',
            "kept"),
    },
    ("tools/train/resume.cpp", "resume"): {
        "the seed may change": (
            'key == "train.seed" || ',
            ""),
        "a ramp may change": (
            '  if (key == "train.batch_ramp") return false;\n',
            ""),
    },
    ("tools/tessera/checkpoint.cpp", "checkpoint_command"): {
        "a damaged checkpoint verifies with status 0": (
            "check(result.damaged == 0,",
            "check(result.damaged >= 0,"),
    },
    ("tools/checkpoint/convert.cpp", "checkpoint_command"): {
        "an export leaves out the routers' biases": (
            "model->routers()) restore_routers(reader.manifest(), *routers);",
            "model->routers()) (void)routers;"),
        "a consolidated checkpoint loses its state": (
            ".healthy = manifest.healthy, .state = manifest.state}",
            ".healthy = manifest.healthy}"),
    },
    ("tools/checkpoint/dcp_names.cpp", "dcp"): {
        "queries keep Meta's order of channels": (
            'name.ends_with(".wq.weight") || ',
            ""),
    },
    ("tools/checkpoint/dcp_folder.cpp", "dcp"): {
        "the chunks of all ranks are the first rows": (
            "element += (chunk.offsets[static_cast<std::size_t>(dim)] + at) * stride;",
            "element += at * stride;"),
    },
    ("tools/checkpoint/dcp_import.cpp", "dcp"): {
        "a converted run begins with the first update": (
            "const std::int64_t updates = importer.step() ?",
            "const std::int64_t updates = !importer.step() ?"),
        "layers that the model does not have are left out": (
            "    check_all_used();\n",
            ""),
    },
    ("tools/checkpoint/torch_archive.cpp", "dcp"): {
        "a storage of another type is read": (
            "storage[1]->expect(ValueKind::global).text == expected &&",
            ""),
    },
    ("tools/checkpoint/dcp_export.cpp", "dcp"): {
        "torchtitan gets our order of channels": (
            "HeadOrder::metas",
            "HeadOrder::ours"),
        "a tied head is written under one name": (
            "} else if (model_->units().front()->at_both_ends()) {",
            "} else if (model_ == nullptr) {"),
    },
    ("tools/train/run_folder.cpp", "resume"): {
        "newer checkpoints stay when a run goes back": (
            "if (checkpoint.step > step) move",
            "if (checkpoint.step > step + 99) move"),
    },
    ("tools/train/session.cpp", "moe_train"): {
        "biases follow the counts of one rank": (
            'reduce_over_ranks({counts}, "expert counts");',
            ""),
        "biases follow the counts of the last micro-batch": (
            "    backward(loss);\n",
            "    backward(loss);\n    if (Routers* r = model_->routers(); r && i + 2 == run_.config.data.accumulation_steps) {\n"
            "      r->start_step({.tokens = 1});\n    }\n"),
        "biases move a step late": (
            "    if (finite) finish_routers();",
            "    if (finite && step > 1) finish_routers();"),
        "a step that f16 skips moves the biases": (
            "    if (finite) finish_routers();",
            "    finish_routers();"),
        "the lagged loss is a mean over a rank's tokens": (
            "{.tokens = inputs.rows * data.sequence_length,",
            "{.tokens = inputs.rows * data.sequence_length / world_.size(),"),
        "f16 divides the loss scale out of the routers' loss": (
            "result.router_loss = router_losses->values()[0];",
            "result.router_loss = router_losses->values()[0] / scale;"),
    },
    ("tools/export/export.cpp", "export"): {
        "an export does not say that it leaves out biases": (
            "[](float b) { return b == 0.0f; }",
            "[](float) { return true; }"),
        "export fills files beyond their most bytes": (
            "bytes + more > options.file_bytes",
            "bytes > options.file_bytes"),
        "export drops the tokenizer's token ids": (
            "if (original.contains(key)) config[key] = original[key];",
            "if (original.contains(key)) config[key] = nullptr;"),
        "export writes over a model": (
            "  check_empty(options.out);\n",
            "  check_empty(options.out / \"model\");\n"),
    },
    ("tools/export/gguf.cpp", "gguf"): {
        "Llama's rotated channels stay half a head apart": (
            "(i < half ? 2 * i : 2 * (i - half) + 1)",
            "i"),
        "GPT-2's matrices are not transposed": (
            "out[layout.transposed ? c * rows + r : row * columns + c]",
            "out[row * columns + c]"),
        "rows of any length are cut into blocks of 32": (
            "type = GgufType::f16;",
            "type = GgufType::q8_0;"),
    },
    ("tools/export/gguf_file.cpp", "gguf"): {
        "a tensor's data begins where the last one ends": (
            "    offset += aligned(bytes_of(info));\n",
            "    offset += bytes_of(info);\n"),
        "sizes are in the order of the shape": (
            "for (int d = rank - 1; d >= 0; --d) put(",
            "for (int d = 0; d < rank; ++d) put("),
        "a block's factor is that of 128 steps": (
            "largest / 127.0f;",
            "largest / 128.0f;"),
    },
    ("tools/export/gguf_model.cpp", "gguf"): {
        "gates and their factors are exchanged": (
            "(i % 2 == 0 ? gates : ups)",
            "(i % 2 == 1 ? gates : ups)"),
        "the keys are paired by the number of queries": (
            "{.paired_heads = config->kv_heads};",
            "{.paired_heads = config->heads};"),
        "a router is as narrow as the experts": (
            " ||\n                   written.ends_with(\"ffn_gate_inp\")",
            ""),
    },
    ("tools/export/gguf_tokenizer.cpp", "gguf"): {
        "a tokenizer may have more tokens than the model": (
            "id < tokens.spellings.size(),",
            "id < tokens.spellings.max_size(),"),
        "a token that ends a text is plain": (
            "? kControl : kUserDefined",
            "? kNormal : kUserDefined"),
    },
    ("sharding/plan/held_part.cpp", "reshard"): {
        "a rank's rows of a divided parameter begin where the first rank's do": (
            "  part.elements.first += tensor * held;\n",
            ""),
        "every rank has the first experts": (
            "parameter.stacked() ? expert * of_experts.numel() : 0;",
            "0 * expert;"),
    },
    ("tools/generate/inference.cpp", "tensor_parallel"): {
        "generation forms its sums in other parts than training": (
            "  options.grid = static_cast<int>(sharding.grid);  // the bits of training\n",
            ""),
    },
    ("tools/plan/prediction.cpp", "expert_parallel"): {
        "sums over channels inside experts travel back in the rows' dtype": (
            ".parts = parts > 1 ? parts / sharding.tensor_parallel : 0",
            ".parts = 0"),
    },
    ("sharding/plan/traffic.cpp", "expert_parallel"): {
        "the counters are not in the predicted traffic": (
            "    add_all_reduce(plan.counters, 8, all);",
            "    add_all_reduce(plan.counters, 4, all);"),
    },
    ("autograd/operations/shared_pieces.cpp", "tensor_parallel"): {
        "a head has the gradient of one group of its queries": (
            "tree_reduce(sum, copies, Reduction::sum);",
            "tree_reduce(sum, std::vector{copies.front()}, Reduction::sum);"),
        "every sharer gives its channels as the first one": (
            "of_sharer(gathered, axis_->rank() % sharers_)",
            "of_sharer(gathered, 0)"),
        "sharers keep their own gradients of a head": (
            "axis_->sharers(sharers_).reduce_scatter(own, sums);",
            "own.copy_from(of_sharer(sums, axis_->rank() % sharers_));"),
    },
    ("autograd/cut.cpp", "tensor_parallel"): {
        "a head of keys has one gradient on few ranks": (
            "std::max<std::int64_t>(1, groups / held.pieces);",
            "1;"),
    },
    ("optim/shards.h", "tensor_parallel"): {
        "columns are rounded as neighbours": (
            "shard.elements()",
            "{.first = shard.elements().first + shard.elements().skip}"),
    },
    ("autograd/context_axis.h", "context"): {
        "a leaf is two neighbouring pieces": (
            "j % 2 == 0 ? leaf : pieces_of_row() - 1 - leaf",
            "j % 2 == 0 ? 2 * leaf : 2 * leaf + 1"),
    },
    ("autograd/context_axis.cpp", "context"): {
        "gradients of keys go to the ranks in the row's order": (
            "return permuted(natural, order_of(batch).to_ranks);",
            "return permuted(natural, order_of(batch).to_natural);"),
    },
    ("autograd/context_attention.cpp", "context"): {
        "the keys behind a piece have gradients of other memory": (
            "    gradients.zero();  // the keys behind the piece\n",
            ""),
        "the keys of a head are read before they have come": (
            "      context().compute_stream().wait(gathered_);\n",
            ""),
        "every group has the logsumexp of the first heads": (
            "number * all / count, all / count",
            "0, all / count"),
        "a piece sees the keys up to its beginning": (
            "keys((axis.cut().place_of(piece) + 1) * q.tokens)",
            "keys(std::max<std::int64_t>(1, axis.cut().place_of(piece)) * q.tokens)"),
    },
    ("autograd/leaf_sum.cpp", "context"): {
        "leaves are added one after another": (
            "bits % 2 == 0; bits /= 2",
            "!sums_.empty() && bits > 1; bits = 1"),
    },
    ("autograd/operations/elementwise.cpp", "context"): {
        "a piece's mask is that of its place on the rank": (
            "axis->place_of_token(token) * channels);",
            "token * channels);"),
    },
    ("autograd/operations/embedding.cpp", "context"): {
        "the table's leaves are added without those of the head": (
            "if (begun.empty()) {",
            "if (begun.empty() || leaf > 0) {"),
    },
    ("models/row_pieces.cpp", "context"): {
        "positions begin again in each piece": (
            "const std::int64_t place = cut.place_of(piece) * tokens + i % tokens;",
            "const std::int64_t place = cut.place_of(0 * piece) * tokens + i % tokens;"),
    },
    ("sharding/plan/traffic.cpp", "context"): {
        "gradients of keys are predicted in the keys' dtype": (
            "true, 4 * sent(keys.reduced));",
            "true, plan.key_bytes * sent(keys.reduced));"),
    },
    ("sharding/plan/plan.h", "context"): {
        "losses of micro-batches are added before those of ranks": (
            "elastic || grid ? micro_batches : 1",
            "elastic ? micro_batches : 1"),
    },
    ("tools/train/resolve.cpp", "moe_train"): {
        "a model that has biases is tuned without them": (
            "    if (!run.config.model.init_from.empty()) "
            "load_router_biases(run.config.model.init_from, *model);\n",
            ""),
    },
    ("tools/plan/plan.cpp", "plan"): {
        "plan shows the rank with the least": (
            "unit.text(spread->most)",
            "unit.text(spread->least)"),
    },
    ("tools/plan/sweep.cpp", "plan"): {
        "a sweep shows the rank with the least": (
            "unit.text(spread->most)",
            "unit.text(spread->least)"),
        "a range of ranks counts one by one": (
            "count *= 2",
            "++count"),
    },
    ("tools/plan/json.cpp", "plan"): {
        "the plan's JSON has the categories' own peaks": (
            "step.account.categories[i].at_peak;",
            "step.account.categories[i].peak;"),
    },
    ("tools/plan/prediction.cpp", "plan"): {
        "plan's total leaves out the slots": (
            "one.optimizer + one.communication;",
            "one.optimizer;"),
        "the plan's peak is that of rank 0": (
            "if (total > all.total.most) all.fullest_rank = rank;",
            ""),
    },
    ("tools/train/size_model.cpp", "resolve"): {
        "overrides of kv_heads are ignored": (
            "set(\"model.kv_heads\", sizes.kv_heads, config.kv_heads);",
            ""),
    },
    ("tools/train/resolve.cpp", "resolve"): {
        "a document token may be outside the vocabulary": (
            "check(number < vocab_size, ",
            "check(number <= vocab_size, "),
    },
    ("optim/shards.h", "optimizer_dtypes"): {
        "the optimizer does not learn where a shard begins": (
            "shard.elements()",
            "shard.part.elements"),
    },
    ("runtime/profiler.cpp", "predicted_time"): {
        "the log of a dry run has no marks": (
            "  if (log_ != nullptr) log_->add_mark(name, track);\n",
            ""),
    },
    ("autograd/expert_layer.cpp", "predicted_time"): {
        "products of experts are in 16 bits": (
            "return rows.values.is_fp8() && layout == WeightLayout::out_in;",
            "return rows.values.is_fp8() && layout != WeightLayout::out_in;"),
    },
    ("autograd/operations/travelling_rows.cpp", "predicted_cuts"): {
        "half of a product of rows that travel is in 16 bits": (
            ".in_8_bits = in_8_bits ? amount : 0.0});",
            ".in_8_bits = in_8_bits ? 0.5 * amount : 0.0});"),
    },
    ("tools/plan/unit_work.cpp", "predicted_time"): {
        "products computed again are in 16 bits": (
            "    inputs.in_8_bits += work.in_8_bits;\n",
            "    if (work.kind == Work::Kind::backward) inputs.in_8_bits += work.in_8_bits;\n"),
        "gradients of frozen weights are products in 8 bits": (
            "return weight.trainable() && weight.rounded();",
            "return weight.rounded();"),
        "a dry run prefetches after the work of the unit": (
            "  next_.before_backward(unit);\n  if (!is_block(model_, unit)) return;\n",
            "  if (!is_block(model_, unit)) return;\n  next_.before_backward(unit);\n"),
        "the head's gradients are not counted": (
            "tokens_ * head_flops(model_) / tensor_ranks_",
            "tokens_ * head_flops(model_) / 3.0 / tensor_ranks_"),
    },
    ("tools/measure/compute_rates.cpp", "bench_prediction"): {
        "the rates of a step are those of its backward pass": (
            "rate(Work::Kind::forward, step.seconds.forward)",
            "0.0 * rate(Work::Kind::forward, step.seconds.forward)"),
        "products in 8 bits have the rate of bf16": (
            "of_products.dtype = DType::e4m3;",
            "of_products.dtype = DType::bf16;"),
    },
    ("tools/plan/machine_file.cpp", "bench_prediction", "predicted_time"): {
        "a fit forgets the rates that the file has": (
            "if (std::filesystem::exists(file)) return",
            "if (file == \"none\") return"),
    },
    ("runtime/tensor.cpp", "predicted_time"): {
        "copies to the host's memory take no time": (
            "if (to.device != from.device) log_work",
            "if (to.device != from.device && bytes == 0) log_work"),
    },
    ("optim/optimizer.cpp", "predicted_time"): {
        "the host updates offloaded state at the rate of the GPU's memory": (
            "if (on_host > 0.0) log_work(host_memory_work(on_host));",
            "if (on_host > 0.0) log_memory(on_host);"),
    },
    ("sharding/strategy/gradient_norm.cpp", "predicted_time"): {
        "reading offloaded gradients for their norm takes no time": (
            "  log_work(host_memory_work(bytes_of(tensors)));\n",
            ""),
    },
    ("runtime/context.cpp", "plan"): {
        "a dry run keeps offloaded state on the device": (
            "  if (options.device == kDryGpu) {",
            "  if (options.device == kDryGpu && options.world_size == 0) {"),
    },
    ("tools/plan/sweep.cpp", "predicted_time"): {
        "a sweep's times are those of the first number of ranks": (
            "    for (const PlannedStrategy& one : line.strategies) text +=",
            "    for (const PlannedStrategy& one : lines.front().strategies) text +="),
    },
    ("tools/plan/advice.cpp", "advice"): {
        "advice tries offload first": (
            "{Offload::none, Offload::optimizer, Offload::all}",
            "{Offload::all, Offload::optimizer, Offload::none}"),
        "the largest micro-batch is a power of two": (
            "too_many - advice.most_rows > 1",
            "too_many > advice.most_rows * 2"),
        "checkpointing is tried before smaller micro-batches": (
            "  add_fit(fits, config, keys, given, options, bytes);\n  if (config",
            "  if (config"),
        "advice with a machine is not sorted by time": (
            "  if (here.machine) {",
            "  if (here.machine && here.ranks == 0) {"),
    },
    ("tools/plan/search.cpp", "predicted_time"): {
        "a search is not sorted by time": (
            "return a.step_seconds < b.step_seconds;",
            "return a.step_seconds > b.step_seconds;"),
    },
    ("tools/plan/predicted_trace.cpp", "predicted_time"): {
        "a predicted trace begins late": (
            "/*shift_us=*/0.0",
            "/*shift_us=*/1e6"),
    },
    ("runtime/out_of_memory.h", "out_of_memory"): {
        "an error's advice is the general one": (
            'throw Error(error.problem + "; " + advice(error));',
            "if (!advice(error).empty()) throw;"),
    },
    ("tools/plan/advice.cpp", "out_of_memory"): {
        "advice fits twice the bytes that a run had": (
            "                                 error.live_bytes);",
            "                                 2 * error.live_bytes);"),
    },
    ("tools/bench/compare.cpp", "out_of_memory"): {
        "a comparison of strategies gives no advice": (
            "    with_training_advice(config_, world_, body);",
            "    body();"),
    },
    ("tools/bench/bench_step.cpp", "out_of_memory"): {
        "bench_step gives no advice": (
            "tessera::with_training_advice(resolved.config, world,",
            "std::invoke("),
    },
    ("tools/generate/inference.cpp", "out_of_memory"): {
        "bf16 is advised where the dtype is bf16": (
            "if (options.dtype == DType::f32) less_work",
            "if (options.dtype == DType::bf16) less_work"),
    },
    ("tools/generate/generate.cpp", "out_of_memory"): {
        "generate advises a smaller batch than one text": (
            "if (job.prompts.size() > 1 && job.options.batch > 1) ways",
            "if (job.prompts.size() == 1) ways"),
    },
    ("tools/generate/score.cpp", "out_of_memory"): {
        "short rows are advised to be shorter": (
            "rows.front().size() - 1 > kTokensAtATime",
            "rows.front().size() - 1 < kTokensAtATime"),
    },
    ("tools/eval/evaluate.cpp", "out_of_memory"): {
        "eval advises shorter sequences for the weights": (
            "if (length > kTokensAtATime) less_work",
            "if (length < kTokensAtATime) less_work"),
    },
    ("tools/plan/machine_file.cpp", "predicted_time"): {
        "a machine file's latency is read as seconds": (
            "1e-6 * entries.number(",
            "entries.number("),
    },
    ("kernels/grouped_matmul/cpu.cpp", "dry_run"): {
        "a grouped product's workspace has the rows of a dry run's counts": (
            ".count = groups.experts,\n"
            "                          .rows = a.size(0)});",
            ".count = groups.experts,\n"
            "                          .rows = groups.end()});"),
    },
    ("autograd/expert_rows.cpp", "dry_run"): {
        "a dry run forgets the rows of uneven shares": (
            "rows / groups + (g < rows % groups ? 1 : 0);",
            "rows / groups;"),
        "the bound of a peak counts one rank's rows": (
            "for (std::int64_t e = 0; e <= n; ++e) received.push_back(from[e] - from[0]);",
            "for (std::int64_t e = 0; e <= n; ++e) received.push_back(r == 0 ? from[e] - from[0] : 0);"),
    },
    ("tools/plan/dry_run.cpp", "dry_run"): {
        "a dry run's batches have no documents": (
            "if (documents) batch",
            "if (false) batch"),
        "the peak is named by the unit that runs next": (
            "if (peak > seen_) moment_ = now_;",
            "if (peak > seen_) moment_ = next;"),
    },
    ("tools/plan/dry_run.h", "dry_run"): {
        "a dry run of many micro-batches is one of two": (
            "std::int64_t micro_batches = 3);",
            "std::int64_t micro_batches = 1);"),
    },
    ("autograd/operations/linear.cpp", "dry_run"): {
        "a linear layer keeps its result for backward": (
            "const auto input_gradient = [=, needs_dx = x.requires_gradient(),",
            "const auto input_gradient = [=, kept = y, needs_dx = x.requires_gradient(),"),
    },
    ("tools/bench/counts/processes.cpp", "counts"): {
        "texts of processes are in the order in which the jobs end": (
            "texts[done->second.number] = ",
            "texts[ended] = "),
        "a process may fail": (
            "WEXITSTATUS(status) == 0",
            "WEXITSTATUS(status) >= 0"),
    },
    ("tools/bench/counts/roofline.cpp", "counts"): {
        "our own products have the library's rate": (
            "0.855 * peak_of(kernel);",
            "peak_of(kernel);"),
        "our own products in 8 bits have the rate of 16 bits": (
            "0.855 * peak_of(kernel);",
            "0.855;"),
        "norms of all rows have the rate of the shortest": (
            "return shape.width <= one.columns;",
            "return shape.width >= 0 && one.columns > 0;"),
    },
    ("tools/bench/counts/extrapolation.cpp", "counts"): {
        "a step's constant work is counted for every sequence": (
            "- (size.batch - 1.0) * without[i]",
            "- 0.0 * without[i]"),
        "a layer more adds the head again": (
            "{-1.0 - experts, 1.0, 0.0, experts}",
            "{0.0 - experts, 1.0, 0.0, experts}"),
        "the experts of one layer count": (
            "size.layers * experts_.part(size.experts)",
            "1.0 * experts_.part(size.experts)"),
    },
    ("tools/bench/counts/kernel_label.cpp", "counts"): {
        "the loss counts as backward": (
            'if (label.ends_with("_norm/backward_kernel"))',
            'if (label.ends_with("_norm/backward_kernel") || label.starts_with("cross_entropy/"))'),
    },
    ("tools/train/session.cpp", "train"): {
        "a rank stages the rows of rank 0": (
            "source.stage(step, micro_batch(0) * rows, rows);",
            "source.stage(step, 0 * rows, rows);"),
        "the rows of this step are staged again": (
            "stage_micro_batch(step + 1, source);",
            "stage_micro_batch(step, source);"),
    },
    ("tools/data/staged_loader.cpp", "staged_loader"): {
        "staged rows are handed out for other rows": (
            "staged->place == place",
            "staged->place.rows == place.rows"),
    },
}

# Tests of optim/.
OPTIM_FAULTS = {
    ("optim/schedule.cpp", "schedule"): {
        "a stage of a table begins a step late": (
            "if (stage.step <= step + 1)",
            "if (stage.step <= step)"),
        "the shape sqrt is that of the rest": (
            "return 1.0 - std::sqrt(progress);",
            "return std::sqrt(1.0 - progress);"),
    },
}

# ---- steps as CUDA graphs, on the emulated GPU
GRAPH_FAULTS = {
    ("tools/train/session.cpp", "cuda_graph"): {
        "an update of a graph is counted by the step, also after one that was skipped": (
            ".update = optimizer_->steps() + 1,",
            ".update = step,"),
    },
    ("kernels/adamw/cuda.cu", "cuda_graph"): {
        "a graph keeps the learning rate of its capture": (
            "    now.learning_rate = numbers.learning_rates.at(settings.optimizer);\n",
            "    now.learning_rate += 0.0 * numbers.learning_rates.at(settings.optimizer);\n"),
    },
    ("autograd/operations/elementwise.cpp", "cuda_graph"): {
        "a graph keeps the mask of its capture": (
            "RandomStream(at.seed, site, numbers.step, at.micro_batch)",
            "RandomStream(at.seed, site, at.step + 0 * numbers.step, at.micro_batch)"),
    },
    ("models/decoder.cpp", "cuda_graph"): {
        "the host asks for the starts of rows that are a document each": (
            "positions_in_pieces(ids.shape(), starts, cut)",
            "positions_in_pieces(ids.shape(), starts_or_rows(starts, ids), cut)"),
    },
    ("tools/train/graphed_step.cpp", "cuda_graph"): {
        "a graph reads the batch of its capture": (
            "  if (!place.defined()) place = Tensor::empty(values.shape(), values.dtype());\n",
            "  if (place.defined() && values.dtype() == DType::i32) return;\n"
            "  if (!place.defined()) place = Tensor::empty(values.shape(), values.dtype());\n"),
    },
    ("runtime/graph_pool.cpp", "cuda_graph"): {
        "a graph shares its memory with tensors outside": (
            "  return pool == nullptr ? stream : pool->number() * kStreamsOfPool + stream;\n",
            "  return pool == nullptr ? stream : stream;\n"),
    },
    ("optim/optimizer.cpp", "cuda_graph"): {
        "a launch is no step of the optimizer": (
            "      if (std::exchange(counted, false)) return;\n",
            "      if (std::exchange(counted, true)) return;\n"),
    },
    ("sharding/strategy/gathered_parameters.cpp", "cuda_graph"): {
        "an evaluation uses parameters that were gathered before a launch": (
            "  if (is_capturing()) before_every_launch([this, b] { ++generations_[b]; });",
            ""),
        "a graph relies on a gather of the step before": (
            "  slot.capture = current_capture();\n",
            ""),
    },
    ("sharding/comm/communicator.cpp", "cuda_graph"): {
        "a launch sends nothing": (
            "is_capturing() ? before_every_launch(count) : count();",
            "if (!is_capturing()) count();"),
    },
    ("runtime/cuda/graph.cpp", "cuda_graph"): {
        "a launch's memory is not counted": (
            "    device_pool_->count_again();\n",
            ""),
    },
    ("models/routers.cpp", "cuda_graph"): {
        "the bias of a router is a new tensor after each step": (
            "  if (on_device.defined()) {\n",
            "  if (on_device.defined()) on_device = {};\n  if (on_device.defined()) {\n"),
    },
}

# ---- messages, memory and the host's calls, on the emulated GPU
GPU_FAULTS = {
    ("sharding/strategy/context_exchange.cpp", "cut_sessions"): {
        "keys travel before they are computed": (
            "  keys_.wait(filled);\n",
            ""),
    },
    ("sharding/strategy/tensor_ranks.cpp", "cut_sessions"): {
        "sums of tensor ranks run next to computation": (
            "  groups_.sums->reduce_scatter({part}, {whole}, context().compute_stream(), \"sums of tensor ranks\");\n",
            "  groups_.sums->reduce_scatter({part}, {whole}, communication_stream(), \"sums of tensor ranks\");\n"),
    },
    ("sharding/strategy/expert_axis.cpp", "cut_sessions"): {
        "rows travel to experts before they are computed": (
            "  stream_.wait(context().compute_stream().record());\n  return group_->all_to_all_parts",
            "  return group_->all_to_all_parts"),
    },
    ("sharding/strategy/pipeline_channels.cpp", "cut_sessions"): {
        "a stage sends before it has computed": (
            "  channel.stream.wait(context().compute_stream().record());\n",
            ""),
    },
    ("runtime/allocator.cpp", "emulated_memory_limit"): {
        "a freed block is not joined with the one after it": (
            "next != nullptr && next->is_free",
            "next != nullptr && next->is_free && next->bytes == 0"),
        "free segments stay when the GPU has no memory": (
            "  while (piece == nullptr) {\n",
            "  while (piece == nullptr && account_.retries < 0) {\n"),
    },
    ("autograd/unit.cpp", "emulated_launches"): {
        "a unit's passes are timed without a trace": (
            'const Span span("forward " + name_, SpanUse::trace);',
            'const Span span("forward " + name_, SpanUse::total);'),
    },
    ("tools/train/session.cpp", "emulated_launches"): {
        "the host waits for each result of a step": (
            "  const HostCopy<std::int64_t> words(norm.words());\n",
            "  current_stream().synchronize();\n"
            "  const HostCopy<std::int64_t> words(norm.words());\n"),
    },
}

BATCHES = [
    planting.Batch(planting.faults_of(OPTIM_FAULTS, "test_optim_"), folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of(FAULTS, "test_tools_"), folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of({**GRAPH_FAULTS, **GPU_FAULTS}, "test_tools_"),
                   folder="build-emulated/planted_faults", preset="emulated")]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
