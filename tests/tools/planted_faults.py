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

# A file, text that occurs in it exactly once, what replaces it, and the tests that are run.
FAULTS = {
    # ---- masters and moments in bf16, and the copies that the optimizer writes
    "the optimizer writes no copies": (
        "optim/adamw.cpp",
        "                       .copy = shard.copy,\n",
        "",
        ["optimizer_dtypes"]),
    "SGD writes no copies": (
        "optim/sgd.cpp",
        "  cast_all(copies, masters);\n",
        "",
        ["optimizer_dtypes"]),
    "bf16 masters lie in buffers of f32": (
        "sharding/plan/plan.cpp",
        "placement.compute_dtype == placement.master_dtype;",
        "placement.compute_dtype == DType::f32;",
        ["optimizer_dtypes"]),
    "masters are predicted in f32": (
        "sharding/plan/footprint.cpp",
        "footprint.parameters += master_ * owned_trained_ + frozen;\n        return;",
        "footprint.parameters += 4 * owned_trained_ + frozen;\n        return;",
        ["optimizer_dtypes"]),
    "moments are predicted in f32": (
        "tools/train/optimizer.cpp",
        "return 2 * static_cast<std::int64_t>(size_of(config.state_dtype));",
        "return 2 * kF32;",
        ["optimizer_dtypes"]),
    "random bits do not depend on the shard's place": (
        "optim/adamw.cpp",
        ".first = shard.first",
        ".first = 0",
        ["optimizer_dtypes"]),
    "the seed of the run does not round": (
        "tools/train/optimizer.cpp",
        ".seed = seed",
        ".seed = 0 * seed",
        ["optimizer_dtypes"]),
    # ---- dry runs, whose addresses have no memory in the calculator
    "a dry run reads the offsets of experts": (
        "kernels/grouped_matmul/cpu.cpp",
        "  if (context().is_dry()) return std::vector<std::int32_t>(count);\n",
        "",
        ["calculator"]),
    "a dry run reads the first keys": (
        "kernels/attention/first_key.cpp",
        " || context().is_dry()",
        "",
        ["calculator"]),
    # ---- the kernels that a run chooses
    "runtime.isa is read and forgotten": (
        "tools/config/kernel_options.cpp",
        "  matmul_options().isa = isa;\n",
        "",
        ["isa"]),
    "a dry run needs the instruction set": (
        "tools/config/kernel_options.cpp",
        "context().is_dry() ? best : ",
        "",
        ["isa"]),
    "a level that the CPU lacks is taken": (
        "tools/config/kernel_options.cpp",
        "cpu::has_isa(isa, best)",
        "cpu::has_isa(best, isa)",
        ["isa"]),
    # ---- documents
    "samples for fine-tuning are taken as documents": (
        "tools/data/documents.cpp",
        "check(!keys_.empty() || !looks_like_sample(document),",
        "check(true || !looks_like_sample(document),",
        ["documents"]),
    # ---- names: of configurations, and of other trainers
    "a preset's name wins over a file's": (
        "tools/config/find.cpp",
        "if (std::filesystem::exists(name)) return",
        'if (std::filesystem::exists(name) && name.ends_with(".yaml")) return',
        ["find"]),
    "overrides come before the preset's settings": (
        "tools/config/find.cpp",
        "settings.insert(settings.end(), overrides.begin(), overrides.end());",
        "",
        ["find"]),
    "any name that ends as an interval does is train's": (
        "tools/config/synonyms.cpp",
        "if (std::find(keys.begin(), keys.end(), key) != keys.end()) return key;",
        "if (!keys.empty()) return key;",
        ["synonyms"]),
    "a hint that the book does not list": (
        "tools/config/synonyms.cpp",
        '    {"n_layers", "model.layers"},\n',
        '    {"n_layers", "model.layers"},\n    {"depth", "model.layers"},\n',
        ["synonyms"]),
    "a hint for a value is not tried": (
        "tools/config/parse.cpp",
        "key->parse(other->substr(0, other->find(' ')));",
        "key->parse(*other);",
        ["synonyms"]),
    "a folder's name may be too long": (
        "tools/train/run_folder.cpp",
        '    check(!code, "cannot make folder {}: {}", existing.string(), code.message());\n',
        "",
        ["run_folder"]),
    # ---- rows of bench_strategies
    "a row runs with the kernels of its world": (
        "tools/bench/compare.cpp",
        "    choose_kernels(config_);\n",
        "",
        ["compared"]),
    "a row's settings change the rows after it": (
        "tools/bench/compared.cpp",
        "all.push_back({std::string(row), with_settings(base, row)});",
        "all.push_back({std::string(row), with_settings(all.empty() ? base : all.back().config, row)});",
        ["compared"]),
    "a row's vocabulary is that of its preset": (
        "tools/bench/compared.cpp",
        "resolve(with_batch_size(row.config, ranks));\n",
        "resolve([&] { Config c = with_batch_size(row.config, ranks); c.data.train.clear(); return c; }());\n",
        ["compared"]),
    "rows of another world are compared": (
        "tools/bench/compared.cpp",
        '"sharding.timeout"};',
        '"sharding.communicator"};',
        ["compared"]),
    "a row with fewer ranks runs on all": (
        "tools/bench/compare.cpp",
        "const int ranks = asked > 0 ? asked : world.size();",
        "const int ranks = std::max(asked, world.size());",
        ["compared"]),
    "a row without threads has one": (
        "tools/bench/compared.cpp",
        "available_threads() / runtime.ranks);",
        "0 / runtime.ranks);",
        ["compared"]),
    "a row's threads are not bound to cores": (
        "tools/bench/compare.cpp",
        "if (config_.runtime.pin) core_",
        "if (config_.runtime.pin && world.size() > 8) core_",
        ["compared"]),
    "another dtype must have the same bits": (
        "tools/bench/compared.cpp",
        '"runtime.pin"};\n\nbool has_effect',
        '"runtime.pin", "runtime.compute_dtype"};\n\nbool has_effect',
        ["compared"]),
    "rows on their way to experts count as predicted traffic": (
        "tools/bench/compare.cpp",
        "measure(world_.bytes_sent() - sent - expert_bytes_sent_);",
        "measure(world_.bytes_sent() - sent);",
        ["compared"]),
    "tokens per second are those of the first row's batch": (
        "tools/bench/compare.cpp",
        "tokens_per_step(options.rows[i].config.data)",
        "tokens_per_step(options.rows[0].config.data)",
        ["bench_strategies"]),
    # ---- generation and scores
    "a stop token is not among the ids": (
        "tools/generate/continuation.cpp",
        "    result_.ids.push_back(token);\n    stopped_ = options_.stop.contains(token);\n",
        "    stopped_ = options_.stop.contains(token);\n"
        "    if (!stopped_) result_.ids.push_back(token);\n",
        ["generate"]),
    "the model's own stop tokens are read from config.json only": (
        "tools/generate/stop_tokens.cpp",
        '{"generation_config.json", "config.json"}',
        '{"config.json"}',
        ["generate"]),
    "a token is scored by the logits after it": (
        "tools/generate/score.cpp",
        "tokens_of(rows, first, last, 1))",
        "tokens_of(rows, first, last, 0))",
        ["generate"]),
    "generation ignores the run's strategy": (
        "tools/generate/inference.cpp",
        "  options.strategy = sharding.strategy;\n",
        "",
        ["generate"]),
    "generation computes in f32 whatever is asked": (
        "tools/generate/inference.cpp",
        ".compute_dtype = dtype};",
        ".compute_dtype = DType::f32};",
        ["generate"]),
    "a chat's prompt gets the tokenizer's special tokens too": (
        "tools/generate/generate.cpp",
        "chat ? job.tokenizer->encode(as_conversation(*chat, options.system, prompt.text))",
        "chat ? job.tokenizer->with_special_tokens(\n"
        "        job.tokenizer->encode(as_conversation(*chat, options.system, prompt.text)))",
        ["generate"]),
    "a chat's system message is dropped": (
        "tools/generate/prompts.cpp",
        'if (!system.empty()) messages.push_back({"system", system});',
        "",
        ["generate"]),
    # ---- launching
    "a run that its configuration stops is started again": (
        "tools/launch/restarts.cpp",
        "(refused || errors_ > 1)",
        "(errors_ > 1)",
        ["launch"]),
    "the wait between restarts does not grow": (
        "tools/launch/restarts.cpp",
        "std::min(failures_ - 1, 30)",
        "0",
        ["launch"]),
    "the first failure takes fewer ranks": (
        "tools/launch/restarts.cpp",
        "if (failures_ < 2 ||",
        "if (",
        ["launch"]),
    "a run with train.resume=never begins again at each restart": (
        "tools/launch/launch.cpp",
        'if (continues()) words.emplace_back("train.resume=auto");',
        "",
        ["launch"]),
    "selftest does not compare weights": (
        "tools/selftest/selftest.cpp",
        "check(weights_of(config) == weights_,",
        "check(weights_of(config) == weights_ || true,",
        ["selftest"]),
    "selftest takes a run that began again for one that continued": (
        "tools/selftest/selftest.cpp",
        'if (line.value("event", "") == "resume" && line["step"] == step) return;',
        "if (line.contains(\"event\") && step > 0) return;",
        ["selftest"]),
    "ranks outlive launch": (
        "tools/launch/process_tree.cpp",
        "  ::prctl(PR_SET_PDEATHSIG, SIGTERM);\n",
        "",
        ["launch"]),
    "orphans outlive their tree": (
        "tools/launch/process_tree.cpp",
        "  ::prctl(PR_SET_CHILD_SUBREAPER, 1);\n",
        "",
        ["launch"]),
    "mpirun waits eight minutes for a lost machine": (
        "tools/launch/launch.cpp",
        "  shorten_keepalive();\n",
        "  if (false) shorten_keepalive();\n",
        ["launch"]),
    "ranks end at the first signal": (
        "tools/launch/launch.cpp",
        "tree.signal(SIGUSR1);",
        "tree.signal(SIGTERM);",
        ["launch"]),
    "bytes of text are counted from the first token, which is no target": (
        "tools/eval/evaluate.cpp",
        "corpus.read(1 + done, ids);",
        "corpus.read(done, ids);",
        ["eval"]),
    "the start of a run says nothing of heads that miss the tensor cores": (
        "tools/train/description.cpp",
        "if (!device.is_cpu() &&",
        "if (device.is_cpu() &&",
        ["session"]),
    "underscores in a whole number get no advice": (
        "tools/config/synonyms.cpp",
        "if (text[i] == '_' &&",
        "if (text[i] == '-' &&",
        ["synonyms"]),
    "several ranks of a configuration for one have no plan": (
        "tools/plan/figures.cpp",
        'suits ? config : variant_of(config, "fsdp");',
        "suits ? config : config;",
        ["plan"]),
    # ---- looks into a run
    "eval does not tell documents apart": (
        "tools/eval/evaluate.cpp",
        "batch.document_starts);",
        "Tensor());",
        ["eval"]),
    "eval cuts windows whatever the run's rows": (
        "tools/eval/evaluate.cpp",
        "if (!options.rows && run) options.rows = run->data.rows;",
        "",
        ["eval"]),
    "a rank without a question counts its answer": (
        "tools/eval/hellaswag.cpp",
        "== question.label && has_one) ++right;",
        "== question.label) ++right;",
        ["continued_texts"]),
    "the right answers are those of rank 0": (
        "tools/train/runner.cpp",
        "world_)) right += numbers.front();",
        "world_)) right = std::max(right, numbers.front());",
        ["continued_texts"]),
    "questions are answered after every line": (
        "tools/train/runner.cpp",
        "(step == train.steps || (train.hellaswag_every > 0 && step % train.hellaswag_every == 0));",
        "true;",
        ["continued_texts"]),
    "samples are drawn by a fixed seed": (
        "tools/train/continued_texts.cpp",
        "static_cast<std::uint64_t>(config.sample.seed)",
        "std::uint64_t{0}",
        ["continued_texts"]),
    "samples take a batch of the training": (
        "tools/train/runner.cpp",
        "  const std::vector<ContinuedText> samples = data_.samples->of(session_.model());\n",
        "  const std::vector<ContinuedText> samples = data_.samples->of(session_.model());\n"
        "  position_.batches += 1;\n",
        ["continued_texts"]),
    "a sample's text begins after its prompt": (
        "tools/train/continued_texts.cpp",
        "samples.push_back({prompts_[i], prompts_[i] + ",
        "samples.push_back({prompts_[i], ",
        ["continued_texts"]),
    "the console cuts a sample inside a character": (
        "tools/train/continued_texts.cpp",
        "    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;\n",
        "",
        ["continued_texts"]),
    "control characters of a sample reach the log": (
        "tools/train/continued_texts.cpp",
        "text += is_control && c != '\\t' ? '?' : c;",
        "text += is_control && c == '\\v' ? '?' : c;",
        ["continued_texts"]),
    # ---- data
    "the last part of an epoch is no step": (
        "tools/train/lengths.cpp",
        "ceil_div(epochs * samples, run.config.data.batch_size);",
        "epochs * samples / run.config.data.batch_size;",
        ["lengths"]),
    "the schedule does not know the epochs": (
        "tools/train/lengths.cpp",
        "  run.schedule.total_steps = run.config.train.steps;\n",
        "",
        ["lengths"]),
    "rows per rank are rows of all ranks": (
        "tools/train/lengths.cpp",
        "config.data.batch_size = rows * ranks;",
        "config.data.batch_size = rows + 0 * ranks;",
        ["lengths"]),
    "the token that ends an answer is not trained": (
        "tools/data/samples.cpp",
        "    marks.push_back(kTrained);\n",
        "    marks.push_back(0);\n",
        ["samples"]),
    "an answer is trained from the token after its first": (
        "tools/data/samples.cpp",
        "for (std::size_t i = token_at(begin); i < last; ++i)",
        "for (std::size_t i = token_at(begin) + 1; i < last; ++i)",
        ["samples"]),
    "marks of earlier data stay next to new tokens": (
        "tools/data/prepare.cpp",
        'entry.path().extension() == ".marks"',
        'entry.path().extension() == ".none"',
        ["samples"]),
    "a batch has all of a sample as targets": (
        "tools/data/loader.cpp",
        "  if (!corpus_.has_marks()) return;\n",
        "  return;\n",
        ["samples"]),
    "a piece without an answer fills a row": (
        "tools/data/document_rows.cpp",
        "    if (piece.targets > 0) take(piece);\n",
        "    if (piece.tokens > 0) take(piece);\n",
        ["samples"]),
    "marks of any file are taken for those of the tokens": (
        "tools/data/mark_file.cpp",
        "  check(header[2] == tokens,",
        "  check(header[2] >= 0,",
        ["samples"]),
    "a piece goes to the last row with room in its half": (
        "tools/data/first_fit.cpp",
        "    node *= 2;\n    if (free_[node] < tokens) ++node;\n",
        "    node = 2 * node + 1;\n    if (free_[node] < tokens) --node;\n",
        ["document_rows"]),
    "packed documents see those before them in the row": (
        "tools/data/loader.cpp",
        "    rows.document_starts.resize(rows.inputs.size(), place);\n",
        "    rows.document_starts.resize(rows.inputs.size(), 0);\n",
        ["document_rows", "rows_train"]),
    "the empty places of a row are predicted": (
        "tools/data/loader.cpp",
        "  rows.targets.resize(end, kIgnoreIndex);\n",
        "  rows.targets.resize(end, *document_token_);\n",
        ["document_rows"]),
    "the targets of a row of documents are counted as a window's": (
        "tools/data/loader.cpp",
        "  if (!document_rows_ && !corpus_.has_marks()) return rows * sequence_length_;\n",
        "  if (rows >= 0) return rows * sequence_length_;\n",
        ["document_rows", "rows_train"]),
    "a document ends where a piece of the corpus that is read ends": (
        "tools/data/document_rows.cpp",
        "      if (starts || piece.tokens == row_length) end_piece",
        "      if (starts || i == 0 || piece.tokens == row_length) end_piece",
        ["document_rows"]),
    "a spool's counts are believed whatever its files hold": (
        "tools/data/token_spool.cpp",
        "    return code ? 0 : static_cast<std::int64_t>(bytes) / width;\n",
        "    return (code ? 0 : static_cast<std::int64_t>(bytes) / width) + 1000;\n",
        ["token_spool"]),
    "a spool's documents may end anywhere": (
        "tools/data/token_spool.cpp",
        "check(first <= last && last <= totals_.tokens,",
        "check(first <= last,",
        ["token_spool"]),
    "YAML's aliases are written out without end": (
        "tools/data/documents.cpp",
        "    left_ -= bytes;\n",
        "    left_ -= bytes / 1000;\n",
        ["documents"]),
    # ---- elastic
    "elastic: micro-batches are added one after another": (
        "sharding/plan/plan.cpp",
        "  return std::countr_zero(static_cast<unsigned>(options.micro_batches)) - 1;",
        "  return 0;",
        ["elastic"]),
    "elastic: a waiting sum is forgotten": (
        "sharding/strategy/partial_sums.cpp",
        "for (int level = 0; level < std::min(waiting, levels); ++level) {",
        "for (int level = 1; level < std::min(waiting, levels); ++level) {",
        ["elastic"]),
    "elastic: a sum waits on the wrong level": (
        "sharding/strategy/partial_sums.cpp",
        "queue_accumulation(of(waiting, b), reduced, /*first=*/true);",
        "queue_accumulation(of(0, b), reduced, /*first=*/true);",
        ["elastic"]),
    "elastic: partial sums are not in the plan": (
        "sharding/plan/footprint.cpp",
        "4 * plan_.partial_sums * owned_trained_;",
        "0 * plan_.partial_sums * owned_trained_;",
        ["elastic"]),
    "elastic: a rank adds up its losses before the sum over ranks": (
        "sharding/plan/plan.h",
        "return elastic ? micro_batches : 1;",
        "return 1;",
        ["elastic"]),
    "elastic: routers' losses are added one after another": (
        "models/routers.cpp",
        "passes_ % step_.losses;",
        "0 * passes_;",
        ["elastic"]),
    "elastic: a rank has neighbouring micro-batches": (
        "tools/train/session.cpp",
        "return source.load(step, (i * world_.size() + world_.rank()) * rows, rows);",
        "return source.load(step, (world_.rank() * run_.config.data.accumulation_steps + i) * rows, rows);",
        ["elastic"]),
    "elastic: dropout is drawn by the rank's own number of a micro-batch": (
        "tools/train/session.cpp",
        "static_cast<std::uint64_t>(i * world_.size() + world_.rank())};",
        "static_cast<std::uint64_t>(i)};",
        ["elastic"]),
    "elastic: 16-bit sums are allowed": (
        "sharding/plan/placement.cpp",
        "return rule.reduce_dtype.value_or(DType::f32) != DType::f32;",
        "return rule.reduce_dtype.value_or(DType::f32) == DType::f64;",
        ["elastic"]),
    "elastic: a run continues with another number of micro-batches": (
        "tools/train/resume.cpp",
        ' || key == "train.elastic") return false;',
        ") return false;",
        ["elastic"]),
    # ---- the console and the files of a run
    "the bar ignores the width of the terminal": (
        "tools/train/progress.cpp",
        "  return known ? size.ws_col : 80;",
        "  return known && size.ws_col > 80 ? size.ws_col : 80;",
        ["console"]),
    "a run that continues starts a new log": (
        "tools/train/log_file.cpp",
        "std::ios::app",
        "std::ios::trunc",
        ["console"]),
    "the log of an earlier run stays among the files of the new one": (
        "tools/train/run_folder.cpp",
        '"metrics.jsonl", "log.txt", "profile"',
        '"metrics.jsonl", "profile"',
        ["console"]),
    "a skipped step is no event": (
        "tools/train/runner.cpp",
        "  if (!result.finite) {\n    event(",
        "  if (result.finite && result.diverged) {\n    event(",
        ["console"]),
    "the command that continues would start again": (
        "tools/train/continuing.cpp",
        'config.train.resume == "auto" ? "" : " --resume"',
        '""',
        ["console"]),
    "TensorBoard's checksums are not masked": (
        "tools/train/tensorboard.cpp",
        "std::rotr(crc, 15) + 0xa282ead8u",
        "crc",
        ["tensorboard"]),
    "large numbers lose bits in TensorBoard's file": (
        "tools/train/tensorboard.cpp",
        "(value & 0x7f) | 0x80)",
        "(value & 0x3f) | 0x80)",
        ["tensorboard"]),
    "TensorBoard keeps steps that a resumed run repeats": (
        "tools/train/tensorboard.cpp",
        "  if (continued_step == 0) return;",
        "  if (continued_step >= 0) return;",
        ["tensorboard"]),
    "TensorBoard's files of an earlier run stay": (
        "tools/train/run_folder.cpp",
        "  for (const fs::path& name : tensorboard_files(path_)) move_to_earlier(name);",
        "",
        ["tensorboard"]),
    "text of a run can end the report's script": (
        "tools/report/report.cpp",
        "c == '<' ? text += \"\\\\u003c\" : text += c;",
        "text += c;",
        ["report"]),
    "a thinned report loses the largest norm": (
        "tools/report/report.cpp",
        "    if (has_norm) line[kNorm] = largest;\n",
        "",
        ["report"]),
    "the report stops at a line that is being written": (
        "tools/report/report.cpp",
        "    if (file.eof()) break;",
        "    if (text.empty()) break;",
        ["report"]),
    # ---- replicas and signals
    "replicas are never compared": (
        "tools/train/session.cpp",
        "if (every > 0 && step % every == 0 &&",
        "if (every > 0 && step % every == -1 &&",
        ["replica_check"]),
    "half of the replicas are a majority": (
        "tools/train/replica_check.cpp",
        "if (2 * most->second.size() <= ranks.size()) {",
        "if (2 * most->second.size() < ranks.size()) {",
        ["replica_check"]),
    "replicas compare no weights": (
        "tools/train/replica_check.cpp",
        "      add(masters, shard->data);\n",
        "",
        ["replica_check"]),
    "replicas of hsdp are all ranks": (
        "tools/train/replica_check.cpp",
        "plan.mesh.group_along(rank, plan.groups[g].placement.replicate)",
        "plan.mesh.group_along(rank * 0, plan.groups[g].placement.replicate)",
        ["replica_check"]),
    "a second signal counts only if it is the same": (
        "tools/program/stop.cpp",
        "  std::signal(SIGINT, SIG_DFL);\n  std::signal(SIGTERM, SIG_DFL);\n",
        "",
        ["mpi"]),
    "a rollback takes the same batches again": (
        "tools/train/runner.cpp",
        "  position_.batches = batches;\n",
        "",
        ["resume"]),
    "a profile goes on after its last step": (
        "tools/train/step_profile.cpp",
        "  if (recording_ && step >= config_.profile.last) stop_recording();",
        "  if (recording_ && step > config_.profile.last) stop_recording();",
        ["profile"]),
    "a profile of steps that a run does not reach is lost": (
        "tools/train/step_profile.cpp",
        "  if (recording_ && run_has_ended) stop_recording();",
        "  if (recording_ && run_has_ended && complete_) stop_recording();",
        ["profile"]),
    "blocks from before the profile count twice": (
        "tools/train/memory_profile.cpp",
        "if (live.erase(event.address) == 0) older",
        "if (live.erase(event.address) > 5) older",
        ["profile"]),
    # ---- evaluation
    "the last sequences of the validation data are left out": (
        "tools/eval/evaluate.cpp",
        "first < loader.samples(); first += at_a_time",
        "first + at_a_time < loader.samples(); first += at_a_time",
        ["eval"]),
    "bits per byte are nats per byte": (
        "tools/eval/evaluate.cpp",
        "total.loss / std::numbers::ln2 /",
        "total.loss /",
        ["eval"]),
    "an answer is chosen by the sum over its tokens": (
        "tools/eval/hellaswag.cpp",
        "sum / static_cast<double>(last - first)",
        "sum",
        ["eval"]),
    "an ending is scored one token late": (
        "tools/eval/hellaswag.cpp",
        "all.scored.emplace_back(kept - 1, kept - 1 + size(ending));",
        "all.scored.emplace_back(kept, kept + size(ending));",
        ["eval"]),
    # ---- training
    "evaluation records a graph": (
        "tools/train/session.cpp",
        "  const NoGradient no_gradient;\n",
        "",
        ["session"]),
    "a skipped step advances Adam's bias correction": (
        "tools/train/session.cpp",
        "if (!finite) optimizer_->step_was_skipped();",
        "",
        ["session"]),
    "the clipping threshold grows with the loss scale": (
        "tools/train/session.cpp",
        "{.max_norm = run_.config.optimizer.clip_norm,",
        "{.max_norm = run_.config.optimizer.clip_norm * numbers.loss_scale,",
        ["session"]),
    "the learning rate of step s is that of step s + 1": (
        "tools/train/session.cpp",
        "learning_rate_at(run_.schedule, step - 1)",
        "learning_rate_at(run_.schedule, step)",
        ["session"]),
    "the loss is divided by all targets, valid or not": (
        "tools/train/session.cpp",
        "const std::int64_t targets = source.valid_targets(step, 0, run_.config.data.batch_size);",
        "const std::int64_t targets =\n"
        "      std::max(source.valid_targets(step, 0, run_.config.data.batch_size),\n"
        "               run_.config.data.batch_size * run_.config.data.sequence_length);",
        ["session"]),
    "the evaluation weights batches by rows": (
        "tools/train/session.cpp",
        "loss.data().item<float>() * static_cast<double>(targets);",
        "loss.data().item<float>() * static_cast<double>(count) * all_targets / rows;",
        ["session"]),
    # ---- checkpoints
    "the learning rate is one step behind after a resume": (
        "tools/train/run_state.cpp",
        "return {.position = {.step = manifest.step,",
        "return {.position = {.step = manifest.step - 1,",
        ["resume"]),
    "the data position is one batch ahead after a resume": (
        "tools/train/run_state.cpp",
        '.batches = count_of(state, "batches")},',
        '.batches = count_of(state, "batches") + 1},',
        ["resume"]),
    "the data position is not saved": (
        "tools/train/run_state.cpp",
        'Json state = {{"batches", position.batches},',
        'Json state = {{"batches", position.step},',
        ["reshard"]),
    "the optimizer's step is lost": (
        "tools/train/run_state.cpp",
        'session.optimizer().set_steps(count_of(state, "updates"));',
        "",
        ["resume"]),
    "the optimizer's moments are lost": (
        "tools/train/run_state.cpp",
        "    read_tensor(reader, name, shard.parameter.shape(), shard.first, tensor);",
        "    read_tensor(reader, name, shard.parameter.shape(), shard.first,\n"
        "                Tensor::zeros(tensor.shape(), tensor.dtype()));",
        ["resume"]),
    "the loss scale is lost": (
        "tools/train/run_state.cpp",
        "if (session.scaler() && state.contains(",
        "if (false && state.contains(",
        ["reshard"]),
    "the routers' biases are lost": (
        "tools/train/run_state.cpp",
        "if (!biases[layer].empty()) routers",
        "if (false) routers",
        ["resume"]),
    "the routers' last counts are lost": (
        "tools/train/run_state.cpp",
        '{.counts = state.at("counts").get<std::vector<std::int64_t>>(),',
        "{.counts = {},",
        ["resume"]),
    "replicas save the same part": (
        "sharding/strategy/strategy.cpp",
        "share_of(shard.data.numel(), replica, group.replicas)",
        "share_of(shard.data.numel(), replica * 0, 1)",
        ["reshard"]),
    "a checkpoint's tensors are not copied": (
        "tools/train/checkpoint_writer.cpp",
        "copies_.push_back(copy_on_host(tensor.values));",
        "copies_.push_back(tensor.part.name.empty() ? copy_on_host(tensor.values) : tensor.values);",
        ["reshard"]),
    "a rank's problem does not stop the checkpoint": (
        "tools/train/checkpointer.cpp",
        'check(problem.empty(), "{}", problem);',
        'check(problem.empty() || true, "{}", problem);',
        ["reshard"]),
    "a checkpoint that one rank cannot read is taken": (
        "tools/train/runner.cpp",
        "[](const auto& rank) { return rank[0] == 1; })) {",
        "[](const auto&) { return true; })) {",
        ["resume"]),
    "metrics of steps that are repeated stay": (
        "tools/train/metrics.cpp",
        'if (json["step"].get<std::int64_t>() <= last) kept',
        "kept",
        ["resume"]),
    "the seed may change": (
        "tools/train/resume.cpp",
        'key == "train.seed" || ',
        "",
        ["resume"]),
    "a skipped step is healthy": (
        "tools/train/runner.cpp",
        "checkpointer_.save(position_.step, result.finite,",
        "checkpointer_.save(position_.step, true,",
        ["resume"]),
    "a damaged checkpoint verifies with status 0": (
        "tools/tessera/checkpoint.cpp",
        "check(result.damaged == 0,",
        "check(result.damaged >= 0,",
        ["checkpoint_command"]),
    "an export leaves out the routers' biases": (
        "tools/checkpoint/convert.cpp",
        "model->routers()) restore_routers(reader.manifest(), *routers);",
        "model->routers()) (void)routers;",
        ["checkpoint_command"]),
    "a consolidated checkpoint loses its state": (
        "tools/checkpoint/convert.cpp",
        ".healthy = manifest.healthy, .state = manifest.state};",
        ".healthy = manifest.healthy};",
        ["checkpoint_command"]),
    "newer checkpoints stay when a run goes back": (
        "tools/train/run_folder.cpp",
        "if (checkpoint.step > step) move",
        "if (checkpoint.step > step + 99) move",
        ["resume"]),
    "biases follow the counts of one rank": (
        "tools/train/session.cpp",
        'sum_over_ranks({counts}, "expert counts");',
        "",
        ["moe_train"]),
    "biases follow the counts of the last micro-batch": (
        "tools/train/session.cpp",
        "    backward(loss);\n",
        "    backward(loss);\n    if (Routers* r = model_->routers(); r && i + 2 == run_.config.data.accumulation_steps) {\n"
        "      r->start_step({.tokens = 1});\n    }\n",
        ["moe_train"]),
    "biases move a step late": (
        "tools/train/session.cpp",
        "    if (finite) finish_routers();",
        "    if (finite && step > 1) finish_routers();",
        ["moe_train"]),
    "a step that f16 skips moves the biases": (
        "tools/train/session.cpp",
        "    if (finite) finish_routers();",
        "    finish_routers();",
        ["moe_train"]),
    "an export does not say that it leaves out biases": (
        "tools/export/export.cpp",
        "[](float b) { return b != 0.0f; }",
        "[](float) { return false; }",
        ["export"]),
    "the lagged loss is a mean over a rank's tokens": (
        "tools/train/session.cpp",
        "{.tokens = tokens_per_step(data),",
        "{.tokens = tokens_per_step(data) / world_.size(),",
        ["moe_train"]),
    "the counters are not in the predicted traffic": (
        "sharding/plan/footprint.cpp",
        "    add_all_reduce(plan.counters, 8, all);",
        "    add_all_reduce(plan.counters, 4, all);",
        ["expert_parallel"]),
    "f16 divides the loss scale out of the routers' loss": (
        "tools/train/session.cpp",
        "result.router_loss = router_losses->values()[0];",
        "result.router_loss = router_losses->values()[0] / scale;",
        ["moe_train"]),
    "a model that has biases is tuned without them": (
        "tools/train/resolve.cpp",
        "    if (!run.config.model.init_from.empty()) "
        "load_router_biases(run.config.model.init_from, *model);\n",
        "",
        ["moe_train"]),
    "plan shows the rank with the least": (
        "tools/plan/plan.cpp",
        "unit.text(spread->most)",
        "unit.text(spread->least)",
        ["plan"]),
    "a sweep shows the rank with the least": (
        "tools/plan/sweep.cpp",
        "unit.text(spread->most)",
        "unit.text(spread->least)",
        ["plan"]),
    "a range of ranks counts one by one": (
        "tools/plan/sweep.cpp",
        "count *= 2",
        "++count",
        ["plan"]),
    "a sweep's strategies are those of the first number of ranks": (
        "tools/plan/figures.cpp",
        "line.strategies = every_strategy(*line.figures);",
        "line.strategies = lines.empty() ? every_strategy(*line.figures) : lines[0].strategies;",
        ["plan"]),
    "a sweep raises the problem of one number of ranks": (
        "tools/plan/figures.cpp",
        "const bool some = std::any_of(",
        "const bool some = std::all_of(",
        ["plan"]),
    "the plan's JSON has the categories' own peaks": (
        "tools/plan/json.cpp",
        "step.account.categories[i].at_peak;",
        "step.account.categories[i].peak;",
        ["plan"]),
    "plan's total leaves out the slots": (
        "tools/plan/prediction.cpp",
        "one.optimizer + one.communication;",
        "one.optimizer;",
        ["plan"]),
    "export fills files beyond their most bytes": (
        "tools/export/export.cpp",
        "bytes + more > options.file_bytes",
        "bytes > options.file_bytes",
        ["export"]),
    "export drops the tokenizer's token ids": (
        "tools/export/export.cpp",
        "if (original.contains(key)) config[key] = original[key];",
        "if (original.contains(key)) config[key] = nullptr;",
        ["export"]),
    "export writes over a model": (
        "tools/export/export.cpp",
        "  check_empty(options.out);\n",
        "  check_empty(options.out / \"model\");\n",
        ["export"]),
    "overrides of kv_heads are ignored": (
        "tools/train/resolve.cpp",
        "set(\"model.kv_heads\", sizes.kv_heads, config.kv_heads);",
        "",
        ["resolve"]),
    "the optimizer does not learn where a shard begins": (
        "optim/shards.h",
        ".first = shard.first",
        ".first = 0",
        ["optimizer_dtypes"]),
    "training does not tell documents apart": (
        "tools/train/session.cpp",
        "numbers.loss_factor, /*training=*/true,\n                          batch.document_starts);",
        "numbers.loss_factor, /*training=*/true, Tensor());",
        ["session"]),
    "validation does not tell documents apart": (
        "tools/train/session.cpp",
        "scale, /*training=*/false, batch.document_starts);",
        "scale, /*training=*/false, Tensor());",
        ["session"]),
    # ---- the time of a step
    "the log of a dry run has no marks": (
        "runtime/profiler.cpp",
        "  if (log_ != nullptr) log_->add_mark(name, track);\n",
        "",
        ["predicted_time"]),
    "a dry run prefetches after the work of the unit": (
        "tools/plan/unit_work.cpp",
        "  next_.before_backward(unit);\n  if (!is_block(unit)) return;\n",
        "  if (!is_block(unit)) return;\n  next_.before_backward(unit);\n",
        ["predicted_time"]),
    "the head's gradients are not counted": (
        "tools/plan/unit_work.cpp",
        "6.0 * tokens_ * head",
        "2.0 * tokens_ * head",
        ["predicted_time"]),
    "the rates of a step are those of its backward pass": (
        "tools/measure/compute_rates.cpp",
        "amount_of(step.log, Work::Kind::forward) /",
        "0.0 * amount_of(step.log, Work::Kind::forward) /",
        ["bench_prediction"]),
    "a fit forgets the rates that the file has": (
        "tools/plan/machine_file.cpp",
        "if (std::filesystem::exists(file)) return",
        "if (file == \"none\") return",
        ["bench_prediction", "predicted_time"]),
    "copies to the host's memory take no time": (
        "runtime/tensor.cpp",
        "if (to.device != from.device) log_work",
        "if (to.device != from.device && bytes == 0) log_work",
        ["predicted_time"]),
    "the host updates offloaded state at the rate of the GPU's memory": (
        "optim/optimizer.cpp",
        "if (on_host > 0.0) log_work(host_memory_work(on_host));",
        "if (on_host > 0.0) log_memory(on_host);",
        ["predicted_time"]),
    "reading offloaded gradients for their norm takes no time": (
        "sharding/strategy/gradient_norm.cpp",
        "  log_work(host_memory_work(bytes_of(gradients)));\n",
        "",
        ["predicted_time"]),
    "a dry run keeps offloaded state on the device": (
        "runtime/context.cpp",
        "  if (options.device == kDryGpu) {",
        "  if (options.device == kDryGpu && options.world_size == 0) {",
        ["plan"]),
    "a sweep's times are those of the first number of ranks": (
        "tools/plan/sweep.cpp",
        "    for (const PlannedStrategy& one : line.strategies) text +=",
        "    for (const PlannedStrategy& one : lines.front().strategies) text +=",
        ["predicted_time"]),
    "advice tries offload first": (
        "tools/plan/advice.cpp",
        "{Offload::none, Offload::optimizer, Offload::all}",
        "{Offload::all, Offload::optimizer, Offload::none}",
        ["advice"]),
    "advice offloads on CPUs": (
        "tools/plan/advice.cpp",
        "const bool offloads = here.on_gpus && (",
        "const bool offloads = (here.on_gpus || here.ranks > 0) && (",
        ["advice"]),
    "a search is not sorted by time": (
        "tools/plan/search.cpp",
        "return a.step_seconds < b.step_seconds;",
        "return a.step_seconds > b.step_seconds;",
        ["predicted_time"]),
    "a predicted trace begins late": (
        "tools/plan/predicted_trace.cpp",
        "/*shift_us=*/0.0",
        "/*shift_us=*/1e6",
        ["predicted_time"]),
    "the largest micro-batch is a power of two": (
        "tools/plan/advice.cpp",
        "too_many - advice.most_rows > 1",
        "too_many > advice.most_rows * 2",
        ["advice"]),
    "checkpointing is tried before smaller micro-batches": (
        "tools/plan/advice.cpp",
        "  add_fit(fits, config, keys, options, bytes);\n  if (config",
        "  if (config",
        ["advice"]),
    "an error's advice is the general one": (
        "runtime/out_of_memory.h",
        'throw Error(error.problem + "; " + advice(error));',
        "if (!advice(error).empty()) throw;",
        ["out_of_memory"]),
    "advice fits twice the bytes that a run had": (
        "tools/plan/advice.cpp",
        "                                 error.live_bytes);",
        "                                 2 * error.live_bytes);",
        ["out_of_memory"]),
    "a comparison of strategies gives no advice": (
        "tools/bench/compare.cpp",
        "    with_training_advice(config_, world_, body);",
        "    body();",
        ["out_of_memory"]),
    "bench_step gives no advice": (
        "tools/bench/bench_step.cpp",
        "tessera::with_training_advice(resolved.config, world,",
        "std::invoke(",
        ["out_of_memory"]),
    "bf16 is advised where the dtype is bf16": (
        "tools/generate/inference.cpp",
        "if (options.dtype == DType::f32) less_work",
        "if (options.dtype == DType::bf16) less_work",
        ["out_of_memory"]),
    "generate advises a smaller batch than one text": (
        "tools/generate/generate.cpp",
        "if (job.prompts.size() > 1 && job.options.batch > 1) ways",
        "if (job.prompts.size() == 1) ways",
        ["out_of_memory"]),
    "short rows are advised to be shorter": (
        "tools/generate/score.cpp",
        "rows.front().size() - 1 > kTokensAtATime",
        "rows.front().size() - 1 < kTokensAtATime",
        ["out_of_memory"]),
    "eval advises shorter sequences for the weights": (
        "tools/eval/evaluate.cpp",
        "if (length > kTokensAtATime) less_work",
        "if (length < kTokensAtATime) less_work",
        ["out_of_memory"]),
    "advice with a machine is not sorted by time": (
        "tools/plan/advice.cpp",
        "  if (here.machine) {",
        "  if (here.machine && here.ranks == 0) {",
        ["advice"]),
    "a machine file's latency is read as seconds": (
        "tools/plan/machine_file.cpp",
        "1e-6 * entries.number(",
        "entries.number(",
        ["predicted_time"]),
    # ---- dry runs
    "a grouped product's workspace has the rows of a dry run's counts": (
        "kernels/grouped_matmul/cpu.cpp",
        ".rows = a.size(0)});",
        ".rows = groups.end()});",
        ["dry_run"]),
    "a dry run forgets the rows of uneven shares": (
        "autograd/expert_rows.cpp",
        "rows / groups + (g < rows % groups ? 1 : 0);",
        "rows / groups;",
        ["dry_run"]),
    "the bound of a peak counts one rank's rows": (
        "autograd/expert_rows.cpp",
        "received[i] = own[first + i % (n + 1)];",
        "if (i <= n) received[i] = own[first + i % (n + 1)];",
        ["dry_run"]),
    "a dry run's batches have no documents": (
        "tools/plan/dry_run.cpp",
        "documents ? Tensor::empty_on_host(shape, DType::i32) : Tensor()",
        "Tensor()",
        ["dry_run"]),
    "the peak is named by the unit that runs next": (
        "tools/plan/dry_run.cpp",
        "if (peak > seen_) moment_ = now_;",
        "if (peak > seen_) moment_ = next;",
        ["dry_run"]),
    "a dry run of many micro-batches is one of two": (
        "tools/plan/dry_run.h",
        "std::int64_t micro_batches = 3);",
        "std::int64_t micro_batches = 1);",
        ["dry_run"]),
    "a linear layer keeps its result for backward": (
        "autograd/operations/linear.cpp",
        "[weight, bias, saved, transpose, needs_dx = x.requires_gradient(),",
        "[weight, bias, saved, y, transpose, needs_dx = x.requires_gradient(),",
        ["dry_run"]),
    "the plan's peak is that of rank 0": (
        "tools/plan/prediction.cpp",
        "if (total > all.total.most) all.fullest_rank = rank;",
        "",
        ["plan"]),
    # ---- bench_counts
    "texts of processes are in the order in which the jobs end": (
        "tools/bench/counts/processes.cpp",
        "texts[done->second.number] = ",
        "texts[ended] = ",
        ["counts"]),
    "a process may fail": (
        "tools/bench/counts/processes.cpp",
        "WEXITSTATUS(status) == 0",
        "WEXITSTATUS(status) >= 0",
        ["counts"]),
    "a step's constant work is counted for every sequence": (
        "tools/bench/counts/extrapolation.cpp",
        "- (size.batch - 1.0) * without[i]",
        "- 0.0 * without[i]",
        ["counts"]),
    "a layer more adds the head again": (
        "tools/bench/counts/extrapolation.cpp",
        "{-1.0 - experts, 1.0, 0.0, experts}",
        "{0.0 - experts, 1.0, 0.0, experts}",
        ["counts"]),
    "the experts of one layer count": (
        "tools/bench/counts/extrapolation.cpp",
        "size.layers * experts_.part(size.experts)",
        "1.0 * experts_.part(size.experts)",
        ["counts"]),
    "the loss counts as forward": (
        "tools/bench/counts/kernel_label.cpp",
        'if (is_of("cross_entropy/")) return StepPhase::backward;',
        'if (is_of("cross_entropy/")) return phase;',
        ["counts"]),
    "a document token may be outside the vocabulary": (
        "tools/train/resolve.cpp",
        "check(number < vocab_size, ",
        "check(number <= vocab_size, ",
        ["resolve"]),
    # ---- rows that are loaded early
    "a rank stages the rows of rank 0": (
        "tools/train/session.cpp",
        "source.stage(step, world_.rank() * rows, rows);",
        "source.stage(step, 0 * rows, rows);",
        ["train"]),
    "the rows of this step are staged again": (
        "tools/train/session.cpp",
        "stage_micro_batch(step + 1, source);",
        "stage_micro_batch(step, source);",
        ["train"]),
    "staged rows are handed out for other rows": (
        "tools/data/staged_loader.cpp",
        "staged->place == place",
        "staged->place.rows == place.rows",
        ["staged_loader"]),
    "the order of cuDNN's sums is not set": (
        "tools/config/kernel_options.cpp",
        "  set_cudnn_order(config.kernels.cudnn_order);\n",
        "",
        ["isa"]),
}

# ---- steps as CUDA graphs, on the emulated GPU
GRAPH_FAULTS = {
    "an update of a graph is counted by the step, also after one that was skipped": (
        "tools/train/session.cpp",
        ".update = optimizer_->steps() + 1,",
        ".update = step,"),
    "a graph keeps the learning rate of its capture": (
        "kernels/adamw/cuda.cu",
        "    now.learning_rate = numbers.learning_rate;\n",
        "    now.learning_rate += 0.0 * numbers.learning_rate;\n"),
    "a graph keeps the mask of its capture": (
        "models/layers.cpp",
        "RandomStream(at.seed, site, numbers.step, at.micro_batch)",
        "RandomStream(at.seed, site, at.step + 0 * numbers.step, at.micro_batch)"),
    "a graph reads the batch of its capture": (
        "tools/train/graphed_step.cpp",
        "  if (!place.defined()) place = Tensor::empty(values.shape(), values.dtype());\n",
        "  if (place.defined() && values.dtype() == DType::i32) return;\n"
        "  if (!place.defined()) place = Tensor::empty(values.shape(), values.dtype());\n"),
    "a graph shares its memory with tensors outside": (
        "runtime/graph_pool.cpp",
        "  return pool == nullptr ? stream : pool->number() * kStreamsOfPool + stream;\n",
        "  return pool == nullptr ? stream : stream;\n"),
    "a launch is no step of the optimizer": (
        "optim/optimizer.cpp",
        "      if (std::exchange(counted, false)) return;\n",
        "      if (std::exchange(counted, true)) return;\n"),
    "an evaluation uses parameters that were gathered before a launch": (
        "sharding/strategy/gathered_parameters.cpp",
        "  if (is_capturing()) before_every_launch([this] { ++generation_; });",
        ""),
    "a graph relies on a gather of the step before": (
        "sharding/strategy/gathered_parameters.cpp",
        "  slot.capture = current_capture();\n",
        ""),
    "a launch sends nothing": (
        "sharding/comm/communicator.cpp",
        "is_capturing() ? before_every_launch(count) : count();",
        "if (!is_capturing()) count();"),
    "a launch's memory is not counted": (
        "runtime/cuda/graph.cpp",
        "    device_pool_->count_again();\n",
        ""),
    "the bias of a router is a new tensor after each step": (
        "models/routers.cpp",
        "  if (on_device.defined()) {\n",
        "  if (on_device.defined()) on_device = {};\n  if (on_device.defined()) {\n"),
}

# ---- memory and the host's calls, on the emulated GPU
GPU_FAULTS = {
    "a freed block is not joined with the one after it": (
        "runtime/allocator.cpp",
        "next != nullptr && next->is_free",
        "next != nullptr && next->is_free && next->bytes == 0",
        ["emulated_memory_limit"]),
    "free segments stay when the GPU has no memory": (
        "runtime/allocator.cpp",
        "  while (piece == nullptr) {\n",
        "  while (piece == nullptr && account_.retries < 0) {\n",
        ["emulated_memory_limit"]),
    "a unit's passes are timed without a trace": (
        "autograd/unit.cpp",
        'const Span span("forward " + name_, SpanUse::trace);',
        'const Span span("forward " + name_, SpanUse::total);',
        ["emulated_launches"]),
    "the host waits for each result of a step": (
        "tools/train/session.cpp",
        "  const HostCopy<std::int64_t> words(norm.words());\n",
        "  current_stream().synchronize();\n"
        "  const HostCopy<std::int64_t> words(norm.words());\n",
        ["emulated_launches"]),
}

BATCHES = [
    planting.Batch(
        {name: planting.Fault(path, old, new, [f"test_tools_{test}" for test in tests])
         for name, (path, old, new, tests) in FAULTS.items()},
        folder="build/planted_faults", preset="release"),
    planting.Batch(
        {name: planting.Fault(path, old, new, ["test_tools_cuda_graph"])
         for name, (path, old, new) in GRAPH_FAULTS.items()},
        folder="build-emulated/planted_faults", preset="emulated"),
    planting.Batch(
        {name: planting.Fault(path, old, new, [f"test_tools_{test}" for test in tests])
         for name, (path, old, new, tests) in GPU_FAULTS.items()},
        folder="build-emulated/planted_faults", preset="emulated"),
]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
