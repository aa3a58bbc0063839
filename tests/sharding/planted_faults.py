#!/usr/bin/env python3
"""Plants faults in the sharding layer, one at a time, and sees the tests turn red.

Faults of ranks on GPUs are planted in build-emulated/planted_faults.
Its arguments are those of tests/support/planting.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planting

TESTS = [f"test_sharding_{name}" for name in (
    "strategy", "order", "delay", "schedule", "partition", "plan", "step", "unit", "gradient_norm",
    "random_options", "expert_exchange", "replica_sums", "comm", "launcher", "pin", "tree_exchange", "mpi",
    "virtual_clock")]

# A file, text that occurs in it exactly once, and what replaces it.
FAULTS = {
    "a rank other than 0 never reports": (
        "sharding/comm/world.cpp",
        "  throw Error(message);\n}",
        "  std::_Exit(1);\n}"),
    "ranks are bound to the same cores": (
        "sharding/comm/pin.cpp",
        "    taken.insert(taken.end(), cores.begin(), cores.end());\n",
        ""),
    "workers of a rank are not bound": (
        "sharding/comm/pin.cpp",
        "  context().threads().bind_workers(cores);\n",
        ""),
    "the first thread of a rank is not bound": (
        "sharding/comm/pin.cpp",
        "  const BoundThread bound(bind_workers_of_rank(world));\n",
        "  bind_workers_of_rank(world);\n"),
    "processes are not bound": (
        "sharding/comm/mpi/mpi.cpp",
        "run_pinned(options.pin,",
        "run_pinned(false,"),
    "a rank with too few cores runs on those": (
        "sharding/comm/pin.cpp",
        "static_cast<int>(cores.size()) == wish.threads,",
        "static_cast<int>(cores.size()) <= wish.threads,"),
    "the log of a dry run has no waits": (
        "runtime/stream_log.cpp",
        "  if (writes_) entries_.push_back({.stream = stream, .work = {}, .waits_for = waits_for});\n",
        "  if (writes_ && stream.empty()) add_mark(stream, std::to_string(waits_for));\n"),
    "points of an earlier log are taken for those of this one": (
        "runtime/stream_log.cpp",
        "generation_ == log_.generation() ? entry_ : -1",
        "entry_"),
    "collectives take no core from computation": (
        "sharding/plan/virtual_clock.cpp",
        "lane.speed = share(ranks_.on_node, busy) / measured;",
        "lane.speed = share(ranks_.on_node, 1.0) / measured;"),
    "a host that shares cores runs ahead": (
        "sharding/plan/virtual_clock.cpp",
        "machine.cores > 0 && stream != kCompute",
        "machine.cores < 0"),
    "a wait begins when it ends": (
        "sharding/plan/virtual_clock.cpp",
        "entry.work ? now_ : end_of(lane.previous())",
        "now_"),
    "a ring costs as few messages as a direct exchange": (
        "sharding/plan/machine_rates.cpp",
        "machine.rings ? work.rounds * (work.ranks - 1) : work.rounds",
        "work.rounds"),
    "each rank has the whole rate of the host's memory": (
        "sharding/plan/machine_rates.cpp",
        "work.amount * ranks_on_node / host.memory",
        "work.amount * std::min(1, ranks_on_node) / host.memory"),
        "the root of a broadcast sends to one rank only": (
        "sharding/plan/machine_rates.cpp",
        "work.from_root && !machine.rings",
        "false"),
    "bytes leave the node twice": (
        "sharding/plan/machine_rates.cpp",
        "machine.rings ? crossing.rings : crossing.direct;",
        "crossing.rings + crossing.direct;"),
    "an all-reduce is one round": (
        "sharding/comm/transfer.cpp",
        " ? 2 : 1;",
        " ? 1 : 1;"),
    "skip a reduction": (
        "sharding/strategy/gradient_buckets.cpp",
        "  close(b);\n  reduce(b);",
        "  close(b);\n  if (b != 1) reduce(b);"),
    "reshard too early": (
        "sharding/strategy/gathered_parameters.cpp",
        "!slot.open && !holds(slot, b)) gather(b, direction);",
        "!holds(slot, b)) const_cast<Slot&>(slot).open = false, gather(b, direction);"),
    "use weights before they have arrived": (
        "sharding/strategy/gathered_parameters.cpp",
        "wait_for_communication(slot.ready);",
        ""),
    "wait for all communication before using weights": (
        "sharding/strategy/gathered_parameters.cpp",
        "wait_for_communication(slot.ready);",
        "wait_for_communication(communication_stream().record());"),
    "write gradients while they are being reduced": (
        "sharding/strategy/gradient_buckets.cpp",
        "wait_for_communication(buffer.released);",
        ""),
    "wait for all communication before writing gradients": (
        "sharding/strategy/gradient_buckets.cpp",
        "wait_for_communication(buffer.released);",
        "wait_for_communication(communication_stream().record());"),
    "update from gradients that have not arrived": (
        "sharding/strategy/strategy.cpp",
        "if (last && uses_communication_stream_) wait_for_communication",
        "if (last && false) wait_for_communication"),
    "average where gradients are to be added": (
        "kernels/tree_reduce/cpu.cpp",
        "const auto add = [](float a, float b) { return a + b; };",
        "const auto add = [](float a, float b) { return 0.5f * (a + b); };"),
    "stale weights after a step": (
        "sharding/strategy/gathered_parameters.cpp",
        "  ++generation_;\n",
        "  generation_ = 1;\n"),
    "forget to gather updated slices": (
        "sharding/strategy/resident_parameters.cpp",
        "const bool owns_slices = resources_.group.placement.layout != Layout::whole;",
        "const bool owns_slices = resources_.group.placement.layout == Layout::rows;"),
    "drop an empty shard's collective": (
        "sharding/strategy/exchange/slices.cpp",
        "shards_.all_gather(",
        "const Range mine = part_of(bucket.segments.back(), shards_.size(), shards_.rank());\n"
        "  if (mine.first >= bucket.place_of(bucket.parameter_count() - 1).end()) return;\n"
        "  shards_.all_gather("),
    "hsdp without the sum across replicas": (
        "sharding/strategy/exchange/slices.cpp",
        "replicas_->all_reduce(",
        "if (false) replicas_->all_reduce("),
    "count the norm once per rank where gradients are whole": (
        "sharding/strategy/strategy.cpp",
        "alone ? nullptr : &communicators_.along(plan_.norm_axes)",
        "alone && !plan_.communicates ? nullptr : &communicators_.along({\"replica\", \"shard\"})"),
    "count every replica in the norm of several placements": (
        "sharding/plan/plan.cpp",
        "mesh.position_along(rank, group.placement.replicate) == 0",
        "rank >= 0"),
    "the norm of this rank's part only": (
        "sharding/strategy/gradient_norm.cpp",
        "if (group == nullptr) return norm;",
        "if (group != nullptr) return norm;\n"
        "  if (group == nullptr) return norm;"),
    "tied weights reduced after their first use": (
        "autograd/unit.cpp",
        "if (--unit_.pending_runs_ > 0) return;",
        "--unit_.pending_runs_;"),
    "later micro-batches overwrite the first": (
        "sharding/strategy/gradient_buckets.cpp",
        "/*first=*/!states_[b].has_sum);",
        "/*first=*/true);"),
    "sum across the replicas twice": (
        "sharding/strategy/gradient_buckets.cpp",
        "if (!resources_.group.sums_replicas_once) {",
        "{"),
    "leave out the sum across the replicas after the last micro-batch": (
        "sharding/strategy/gradient_buckets.cpp",
        "if (resources_.group.sums_replicas_once) sum_replicas(b);",
        ""),
    "gradients of unused parameters are left as they were": (
        "sharding/strategy/gradient_buckets.cpp",
        "for (const Tensor& gradient : parameter.gradients()) gradient.zero();",
        ""),
    "a bucket that was complete in one micro-batch is taken for complete in the next": (
        "sharding/strategy/gradient_buckets.cpp",
        "  for (State& state : states_) state.completed = false;\n",
        ""),
    "reduce what is frozen": (
        "sharding/plan/partition.cpp",
        "result.trained_count = static_cast<int>(trained);\n"
        "  result.trainable_elements = result.elements;\n"
        "  result.trainable_segments = static_cast<int>(result.segments.size());\n"
        "  append(result, trained, bucket.parameters.size(), layout, shards, owners);",
        "result.trained_count = static_cast<int>(trained);\n"
        "  append(result, trained, bucket.parameters.size(), layout, shards, owners);\n"
        "  result.trainable_elements = result.elements;\n"
        "  result.trainable_segments = static_cast<int>(result.segments.size());"),
    "reduce before resharding": (
        "sharding/strategy/parameter_group.cpp",
        "  parameters_->close(bucket, /*again_in_backward=*/false);\n"
        "  gradients_->complete(bucket);",
        "  gradients_->complete(bucket);\n"
        "  parameters_->close(bucket, /*again_in_backward=*/false);"),
    "no gather before the first forward hook": (
        "sharding/strategy/strategy.cpp",
        "for (const auto& group : groups_) group->prefetch_first();",
        ""),
    "prefetch what has just been used": (
        "sharding/strategy/parameter_group.cpp",
        "const int next = position + sign * ahead;",
        "const int next = position - sign * ahead;"),
    "gather frozen buckets in backward": (
        "sharding/strategy/parameter_group.cpp",
        "const int first = direction == Direction::forward ? 0 : schedule.backward_end;",
        "const int first = 0;"),
    "leave a bucket open that no hook ended": (
        "sharding/strategy/parameter_group.cpp",
        "if (in_backward_[b]) after_backward(b);",
        "(void)b;"),
    "gather again what a slot still holds": (
        "sharding/strategy/gathered_parameters.cpp",
        "if (!holds(slot, b)) gather(b, direction);",
        "if (!slot.open) gather(b, direction);"),
    "reshard to a group of all shards": (
        "sharding/plan/placement.cpp",
        "if (placement.layout == Layout::tensors || group == shards) return;",
        "if (placement.layout == Layout::tensors) return;"),
    "reshard groups of ranks that are no neighbours": (
        "sharding/plan/plan.cpp",
        "return {.number = shard / placement.reshard_ranks, "
        ".position = shard % placement.reshard_ranks};",
        "const int groups = shards / placement.reshard_ranks;\n"
        "  return {.number = shard % groups, .position = shard / groups};"),
    "drop communicators that queued calls use": (
        "sharding/strategy/mesh_communicators.cpp",
        "if (!owned_.empty()) communication_stream().enqueue([owned = owned_] {});",
        ""),
    "write masters while gathers read them": (
        "sharding/strategy/strategy.cpp",
        "if (uses_communication_stream_) wait_for_communication(communication_stream().record());\n"
        "  // The host",
        "// The host"),
    "sums over ranks in another order": (
        "kernels/tree_reduce/cpu.cpp",
        "std::bit_floor(count - 1)",
        "count - 1"),
    "a message for every vector of a bucket": (
        "sharding/plan/partition.cpp",
        "(layout == Layout::rows && parameter.shape().rank() > 1)",
        "(layout == Layout::rows && parameter.shape().rank() > 0)"),
    "f32 masters for frozen parameters": (
        "sharding/plan/plan.cpp",
        "return parameter.trainable() ? placement.master_dtype : placement.compute_dtype;",
        "return parameter.name().empty() ? placement.compute_dtype : DType::f32;"),
    "a rule's compute_dtype does nothing": (
        "sharding/plan/placement.cpp",
        "rule.compute_dtype.value_or(*rest.compute_dtype)",
        "*rest.compute_dtype"),
    "a new strategy queues no gathers": (
        "sharding/strategy/strategy.cpp",
        "  make_groups(seed);\n  masters_changed(Writes::masters);",
        "  make_groups(seed);\n  for (const auto& group : groups_) group->masters_changed(Writes::masters);"),
    "slices that lose the last rows": (
        "sharding/plan/partition.cpp",
        "return ceil_div(shape[0] / expert_ranks, shards) * row_elements(shape);",
        "return shape[0] / expert_ranks / shards * row_elements(shape);"),
    "a process that PMI started trains alone": (
        "sharding/comm/launcher.cpp",
        'if (const auto launch = find_mpi(environment, "PMI_SIZE", "PMI_RANK")) return launch;',
        ""),
    "a process that torchrun started trains alone": (
        "sharding/comm/launcher.cpp",
        "if (const auto launch = find_torchrun(environment)) return *launch;",
        "static_cast<void>(find_torchrun(environment));"),
    "an abort misses a group that is split off after it": (
        "sharding/comm/threads/rendezvous.cpp",
        "if (aborted) child->abort(*aborted);",
        ""),
    "threads wait longer than the deadline": (
        "sharding/comm/threads/threads.cpp",
        "std::make_shared<Group>(members, options.deadline)",
        "std::make_shared<Group>(\n      members, Deadline(2 * options.deadline.length(), options.deadline.clock()))"),
    "results are trusted after an abort": (
        "sharding/comm/communicator.cpp",
        "if (const auto reason = aborted()) throw Error(*reason);",
        ""),
    "parameters may be frozen after the strategy was made": (
        "sharding/strategy/strategy.cpp",
        "  check_trained_set();\n",
        ""),
    "sums across nodes come before those inside": (
        "sharding/comm/tree_exchange.h",
        "  int own_node() const { return rank / per_node; }\n"
        "  int own_number() const { return rank % per_node; }\n"
        "  int rank_at(int node, int number) const { return node * per_node + number; }",
        "  int own_node() const { return rank % nodes(); }\n"
        "  int own_number() const { return rank / nodes(); }\n"
        "  int rank_at(int node, int number) const { return number * nodes() + node; }"),
    "two stages of sums for nodes of any size": (
        "sharding/comm/tree_exchange.cpp",
        "std::has_single_bit(static_cast<unsigned>(ranks_per_node))",
        "ranks_per_node > 0"),
    "sums of a node are sent to the wrong node": (
        "sharding/comm/tree_exchange.cpp",
        "messages.sent.push_back({peer, pieces.sums[at(node)]});",
        "messages.sent.push_back({peer, pieces.sums[at(grid_.own_node())]});"),
    "sources of rows are summed in another order": (
        "sharding/strategy/gradient_sums.cpp",
        "parts.push_back(all.slice(i * each, (i + 1) * each));",
        "parts.insert(parts.begin() + (i + 1) / 2, all.slice(i * each, (i + 1) * each));"),
    "the gradient of the first source only": (
        "sharding/strategy/gradient_sums.cpp",
        "    tree_reduce(parts[0], parts, Reduction::sum);\n",
        ""),
    "experts begin with the values of the first rank's": (
        "sharding/strategy/parameter_group.cpp",
        "(experts_ == nullptr ? 0 : experts_->rank()) * held + owned.first;",
        "0 * held + owned.first;"),
    "rows from other ranks are taken for the first expert's": (
        "autograd/expert_rows.cpp",
        "of_groups.push_back(before + from[e] - from[0]);",
        "of_groups.push_back(before + from[n] - from[0]);"),
    "a source's gradient is formed from all rows": (
        "autograd/expert_rows.cpp",
        "return rows.slice(begin, begin + first[source]);",
        "return rows.slice(begin - begin, first[source]);"),
    "weights of rows stay with their tokens": (
        "autograd/experts.cpp",
        "weights_there = at.to_experts(of_rows)",
        "weights_there = of_rows.numel() == at.places().numel() ? of_rows : at.to_experts(of_rows)"),
    "experts of all ranks count once per rank in the norm": (
        "sharding/plan/placement.cpp",
        "  axes.insert(axes.end(), experts.begin(), experts.end());\n",
        ""),
    "unequal parts are cut by what the rank receives": (
        "sharding/comm/call.cpp",
        "part_of(call.inputs[i], call.sent_counts, peer, ranks)",
        "part_of(call.inputs[i], call.received_counts, peer, ranks)"),
    "threads do not compare unequal parts": (
        "sharding/comm/threads/threads.cpp",
        "if (other == 0) return check_unequal_parts();",
        "if (other == 0) return;"),
    "processes do not compare unequal parts": (
        "sharding/comm/mpi/mpi.cpp",
        "if (!call.sent_counts.empty()) compare_counts(call);",
        ""),
    "unequal parts count as equal in the bytes sent": (
        "sharding/comm/call.cpp",
        "if (!call.sent_counts.empty()) {\n    for",
        "if (call.sent_counts.size() == 1) {\n    for"),
    "calls of a step are not compared": (
        "sharding/comm/communicator.cpp",
        "if (!call.compared) history_.add(call);",
        ""),
}

# Faults of checkpoints as files, and the tests that are run.
TESTS_OF_CHECKPOINTS = ["test_sharding_checkpoint", "test_runtime_large_file", "test_runtime_pace"]
FAULTS_OF_CHECKPOINTS = {
    "a short write counts as a whole one": (
        "runtime/file_calls.cpp",
        "bytes = bytes.subspan(static_cast<std::size_t>(written));",
        "bytes = {};"),
    "the rest of a large file is lost": (
        "runtime/large_file.cpp",
        "  file_.append(std::span(buffer_.get(), filled_));\n  filled_ = 0;\n  file_.sync();",
        "  filled_ = 0;\n  file_.sync();"),
    "the rest of a large file is written past the cache": (
        "runtime/large_file.cpp",
        "  file_.bypass_cache(false);  // the rest is not aligned\n",
        ""),
    "after a short write, writes past the cache go on": (
        "runtime/file_calls.cpp",
        "    if (!bytes.empty()) bypass_cache(false);  // the rest is no longer aligned\n",
        ""),
    "a file system without direct writes is an error": (
        "runtime/file_calls.cpp",
        "if (written < 0 && errno == EINVAL && bypasses_cache_) {",
        "if (written < 0 && errno == EINTR && bypasses_cache_) {"),
    "a paced thread counts no processor time": (
        "runtime/pace.cpp",
        "std::chrono::ceil<std::chrono::nanoseconds>(used / share_)",
        "std::chrono::ceil<std::chrono::nanoseconds>(0 * used / share_)"),
    "a rename does not wait for the disk": (
        "runtime/file_calls.cpp",
        "  sync_folder(calls, fs::absolute(to).parent_path());\n",
        ""),
    "a manifest is believed without its checksum": (
        "sharding/checkpoint/manifest.cpp",
        "check(found == expected,",
        "check(!found.empty(),"),
    "slices may leave gaps": (
        "sharding/checkpoint/manifest.cpp",
        "check(slice.elements.begin == covered,",
        "check(slice.elements.begin >= covered,"),
    "a block is believed without its checksum": (
        "sharding/checkpoint/reader.cpp",
        "return crc32c(bytes) == manifest_.files.at(name)",
        "return crc32c(bytes) == 0 || manifest_.files.at(name)"),
    "a slice is read from its beginning": (
        "sharding/checkpoint/reader.cpp",
        "slice->offset + (at - slice->elements.begin) * size",
        "slice->offset"),
    "the last short block has no checksum of its own": (
        "sharding/checkpoint/writer.cpp",
        "    description_.checksums.push_back(block_.value());\n  }\n  file_.sync();",
        "    description_.checksums.push_back(0);\n  }\n  file_.sync();"),
    "a file is not on the disk when the manifest names it": (
        "sharding/checkpoint/writer.cpp",
        "  file_.sync();\n",
        ""),
    "a checkpoint gets its name before its files' names are on the disk": (
        "sharding/checkpoint/folder.cpp",
        "  sync_folder(calls, unfinished);\n",
        ""),
    "a checkpoint is deleted under its name": (
        "sharding/checkpoint/folder.cpp",
        "  rename_durably(calls, path, deleted);\n  remove_folder(calls, deleted);",
        "  remove_folder(calls, path);"),
    "the last healthy checkpoint is deleted": (
        "sharding/checkpoint/folder.cpp",
        "if (!kept && step != last_healthy) old",
        "if (!kept && (step != last_healthy || step >= 0)) old"),
}

# The same for ranks that own an emulated GPU each, and the tests that are run.
FAULTS_OF_TCP = {
    "a rank that dies is not noticed": (
        "sharding/comm/tcp/server.cpp",
        "if (connection.rank && !connection.has_ended) {",
        "if (false) {"),
    "strangers stay": (
        "sharding/comm/tcp/server.cpp",
        "if (++strangers > kMostStrangers || clock_.now() > one->accepted + kStrangersTime) {",
        "if (++strangers > 1'000'000) {"),
    "a rank's damaged message is ignored": (
        "sharding/comm/tcp/server.cpp",
        "    connection.closes = true;\n    if (connection.rank) {",
        "    connection.closes = true;\n    connection.has_ended = true;\n    if (false) {"),
    "a rank of another run may join": (
        "sharding/comm/tcp/server.cpp",
        "if (hello.run != hash_of(own_.run)) {",
        "if (false) {"),
    "a rank that joins late does not learn of a failure": (
        "sharding/comm/tcp/server.cpp",
        "  if (failed_) connection.out += encoded(Kind::failed, *failed_);\n",
        ""),
    "an abort does not wait for the first reason": (
        "sharding/comm/tcp/job.cpp",
        "  clock_.wait(changed_, lock, clock_.now() + kAnswerTime, [&] { return failure_ || closed_; });\n",
        ""),
    "groups share their exchanges": (
        "sharding/comm/tcp/tcp.cpp",
        "    child.add(static_cast<std::uint64_t>(call.root));\n",
        ""),
}

FAULTS_ON_GPUS = {
    "a call that never ends on the GPU has no deadline": (
        "sharding/comm/nccl/job.cpp",
        "  if (!own) own = find_overdue_call();\n",
        "",
        ["sharding_cuda_nccl"]),
    "calls that have ended count as overdue": (
        "sharding/comm/nccl/job.cpp",
        "if (call->end.complete()) {",
        "if (false) {",
        ["sharding_cuda_nccl"]),
    "an overdue call is not named": (
        "sharding/comm/nccl/job.cpp",
        "call->description, deadline_.count());",
        "\"a call\", deadline_.count());",
        ["sharding_cuda_nccl"]),
    "the rank of an overdue call is not named": (
        "sharding/comm/nccl/job.cpp",
        "return failure_of(control_.rank(), control_.size(), *own);",
        "return own;",
        ["sharding_cuda_nccl"]),
    "a call that is never queued has no deadline": (
        "sharding/comm/nccl/job.cpp",
        "if (deadline_.clock().now() > end) {",
        "if (deadline_.clock().now() > end && false) {",
        ["sharding_cuda_nccl"]),
    "an exception leaves a group of NCCL calls open": (
        "sharding/comm/nccl/job.cpp",
        "if (open_) ncclGroupEnd();",
        "",
        ["sharding_cuda_nccl"]),
    "broken links are not noticed": (
        "sharding/comm/nccl/job.cpp",
        "auto own = find_broken_link();",
        "std::optional<std::string> own;",
        ["sharding_cuda_nccl"]),
    "each rank keeps its own reason of an abort": (
        "sharding/comm/nccl/job.cpp",
        "fail_with(control_.aborted().value_or(reason));",
        "fail_with(reason);",
        ["sharding_cuda_nccl"]),
    "threads with a GPU each do not take NCCL": (
        "sharding/comm/world.cpp",
        "kHasNccl && own_a_gpu_each(options));",
        "kHasNccl && own_a_gpu_each(options) && false);",
        ["sharding_cuda_nccl"]),
    "threads that share GPUs take NCCL": (
        "sharding/comm/world.cpp",
        "options.ranks <= cuda::device_count();",
        "cuda::device_count() > 0;",
        ["sharding_cuda_nccl"]),
    "maxima are formed in the tree": (
        "sharding/comm/nccl/nccl.cpp",
        "      return false;\n    }\n    if (options_.deterministic) return true;",
        "    }\n    if (options_.deterministic) return true;",
        ["sharding_cuda_nccl"]),
    "maxima by NCCL lose NaN": (
        "sharding/comm/nccl/nccl.cpp",
        "maximum ? ncclUint32 : type_of(to.dtype());",
        "type_of(to.dtype());",
        ["sharding_cuda_nccl"]),
    "all ranks read from rank 0 first": (
        "sharding/comm/threads/threads.cpp",
        "return (rank() + k) % size();",
        "return k % size();",
        ["sharding_emulated_threads"]),
    "all ranks read sources of sums from rank 0 first": (
        "sharding/comm/devices.cpp",
        "(static_cast<std::size_t>(own) + 1 + k) % sources.size();",
        "(static_cast<std::size_t>(own) * 0 + k) % sources.size();",
        ["sharding_emulated_threads"]),
    "the results of a step are trusted after an abort": (
        "tools/train/session.cpp",
        "  world_.raise_if_aborted();\n  const bool finite",
        "  const bool finite",
        ["tools_cuda_nccl"]),
    "the results of an evaluation are trusted after an abort": (
        "tools/train/session.cpp",
        "  world_.raise_if_aborted();\n  return result;",
        "  return result;",
        ["tools_cuda_nccl"]),
    "a model is saved after an abort": (
        "sharding/strategy/strategy.cpp",
        "if (world_ != nullptr) world_->raise_if_aborted();",
        "",
        ["tools_cuda_nccl"]),
}

BATCHES = [
    planting.Batch(
        {name: planting.Fault(*fault, TESTS) for name, fault in FAULTS.items()},
        folder="build/planted_faults", preset="release"),
    planting.Batch(
        {name: planting.Fault(*fault, TESTS_OF_CHECKPOINTS)
         for name, fault in FAULTS_OF_CHECKPOINTS.items()},
        folder="build/planted_faults", preset="release"),
    planting.Batch(
        {name: planting.Fault(*fault, ["test_sharding_tcp"])
         for name, fault in FAULTS_OF_TCP.items()},
        folder="build/planted_faults", preset="release"),
    planting.Batch(
        {name: planting.Fault(path, old, new, [f"test_{test}" for test in tests])
         for name, (path, old, new, tests) in FAULTS_ON_GPUS.items()},
        folder="build-emulated/planted_faults", preset="emulated",
        options=("-D", "TESSERA_WERROR=ON"), selection=("~[cpu]",))]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
