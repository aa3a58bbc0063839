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
    "strategy", "order", "delay", "schedule", "stages", "partition", "plan", "step", "unit", "gradient_norm",
    "random_options", "expert_exchange", "replica_sums", "comm", "launcher", "pin", "tree_exchange", "mpi",
    "virtual_clock", "stage_clock", "whole_matrices")]

# By file and name: text that occurs in the file exactly once, and what replaces it.
FAULTS = {
    "sharding/plan/whole_matrices.cpp": {
        "all matrices have one owner": (
            "work[static_cast<std::size_t>(matrix.owner)] += cost_of(matrix);",
            "work[static_cast<std::size_t>(matrix.owner)] += 0.0;"),
        "the owner of a whole tensor may lack it": (
            "if (placement.layout == Layout::tensors) {",
            "if (plan.ranks < 0) {"),
        "a matrix of a stack is at the place of the first": (
            "  part.elements.first -= matrix.index * matrix.numel();\n",
            ""),
        "replicas send parts that the owner has": (
            "  if (holds_whole(group) && rank / tensors != matrix.owner / tensors) return false;\n",
            ""),
        "results of one tensor rank are counted": (
            "replicas * (is_divided(group, matrix) ? 1 : plan.tensors);",
            "replicas;"),
    },
    "sharding/strategy/whole_parameters.cpp": {
        "a visit of some parameters gathers the others": (
            "if (overlaps && includes(bucket.parameters[p])) return false;",
            "if (overlaps) return false;"),
    },
    "sharding/strategy/matrix_exchange.cpp": {
        "an owner does not wait for the parts": (
            "    wait_for_message();\n    copy_runs(",
            "    arrival_.reset();\n    copy_runs("),
        "ranks do not wait for the results": (
            "    wait_for_message();\n    std::vector<Tensor> values",
            "    arrival_.reset();\n    std::vector<Tensor> values"),
        "a piece begins at the parameter's beginning": (
            ".first = own_[i].first - first_of_shard(matrix),",
            ".first = own_[i].first,"),
        "rows are always outputs": (
            "const bool rows_are_outputs = output_dimension(parameter) == 0;",
            "const bool rows_are_outputs = output_dimension(parameter) < 9;"),
    },
    "sharding/strategy/expert_axis.cpp": {
        "computation does not wait for the rows of experts": (
            "  wait_for_communication(arrival);\n",
            "  (void)arrival;\n"),
    },
    "autograd/token_copies.cpp": {
        "a token's copy travels for each of its experts": (
            "if (of_rank.empty() || of_rank.back() != token)",
            "if (per_token > 0)"),
    },
    "autograd/leaf_sum.cpp": {
        "pieces of an odd number of tokens lose the last one": (
            "rows.slice(leaf * count / leaves, (leaf + 1) * count / leaves);",
            "rows.slice(leaf * (count / leaves), (leaf + 1) * (count / leaves));"),
    },
    "sharding/plan/expert_traffic.cpp": {
        "the numbers of copies are sent for nothing": (
            "offsets + (once ? rows.sent : 0)",
            "offsets"),
    },
    "sharding/plan/stages.cpp": {
        "a token is multiplied by all experts": (
            "  if (!parameter.stacked() || experts_per_token == 0) return parameter.numel();\n",
            "  if (experts_per_token >= 0) return parameter.numel();\n"),
        "tied ends cost all their parameters": (
            "most = std::max(most, parameter.numel());",
            "most += parameter.numel();"),
    },
    "sharding/comm/world.cpp": {
        "a rank other than 0 never reports": (
            "  throw Error(message);\n}",
            "  std::_Exit(1);\n}"),
    },
    "sharding/comm/pin.cpp": {
        "ranks are bound to the same cores": (
            "    taken.insert(taken.end(), cores.begin(), cores.end());\n",
            ""),
        "workers of a rank are not bound": (
            "  context().threads().bind_workers(cores);\n",
            ""),
        "the first thread of a rank is not bound": (
            "  const BoundThread bound(bind_workers_of_rank(world));\n",
            "  bind_workers_of_rank(world);\n"),
        "a rank with too few cores runs on those": (
            "static_cast<int>(cores.size()) == wish.threads,",
            "static_cast<int>(cores.size()) <= wish.threads,"),
    },
    "sharding/comm/mpi/mpi.cpp": {
        "processes are not bound": (
            "run_pinned(options.pin,",
            "run_pinned(false,"),
        "processes do not compare unequal parts": (
            "if (!call.sent_counts.empty()) compare_counts(call);",
            ""),
    },
    "runtime/stream_log.cpp": {
        "the log of a dry run has no waits": (
            "  if (writes_) entries_.push_back({.stream = stream, .work = {}, .waits_for = waits_for});\n",
            "  if (writes_ && stream.empty()) add_mark(stream, std::to_string(waits_for));\n"),
        "points of an earlier log are taken for those of this one": (
            "generation_ == log_.generation() ? entry_ : -1",
            "entry_"),
    },
    "sharding/plan/virtual_clock.cpp": {
        "products in 8 bits have the rate of the others": (
            "work.in_8_bits / in_8_bits) / threads;",
            "work.in_8_bits / rate) / threads;"),
        "collectives take no core from computation": (
            "lane.speed = share(ranks_.on_node, busy) / measured;",
            "lane.speed = share(ranks_.on_node, 1.0) / measured;"),
        "a host that shares cores runs ahead": (
            "machine_.cores > 0 && entry.stream != kCompute",
            "machine_.cores < 0"),
        "a wait begins when it ends": (
            "work ? now_ : end_of(lane.previous())",
            "now_"),
        "a message begins when its sender is ready": (
            "if (by_log.size() > 1) add_meetings",
            "if (by_log.size() > 2) add_meetings"),
        "waits for other stages count as waits for messages": (
            "if (lane->has_come) return others;",
            "if (lane->has_come) return item(lane->entry()).axis;"),
        "a stage that is done first has no bubble": (
            "timeline.bubble += computed - computed_until_[log];",
            "timeline.bubble += computed - computed;"),
        "stages share a node's cores as if each had all of its ranks": (
            "busy /= static_cast<double>(firsts_.size());",
            "busy *= 1.0;"),
        "transfers of the compute stream are not exposed": (
            "if (compute.runs && !exchanges(item(compute.entry()))) return;",
            "if (compute.runs) return;"),
        "a group along one axis counts as data": (
            "axes.size() == 1 &&",
            "axes.size() == 2 &&"),
    },
    "sharding/plan/machine_rates.cpp": {
        "a ring costs as few messages as a direct exchange": (
            "machine.rings && !work.to_one ? work.rounds * (work.ranks - 1) : work.rounds",
            "work.rounds"),
        "a message to one rank goes around the ring": (
            "machine.rings && !work.to_one",
            "machine.rings"),
        "each rank has the whole rate of the host's memory": (
            "work.amount * ranks_on_node / host.memory",
            "work.amount * std::min(1, ranks_on_node) / host.memory"),
        "the root of a broadcast sends to one rank only": (
            "work.from_root && !machine.rings",
            "false"),
        "a switch adds between nodes": (
            "work.all_reduces && !leaves &&",
            "work.all_reduces &&"),
        "bytes leave the node twice": (
            "machine.rings ? crossing.rings : crossing.direct;",
            "crossing.rings + crossing.direct;"),
    },
    "sharding/comm/transfer.cpp": {
        "an all-reduce is one round": (
            " ? 2 : 1;",
            " ? 1 : 1;"),
    },
    ("sharding/strategy/gradient_buckets.cpp", "tools_optimizer_dtypes"): {
        "gradients are held in f32 in any case": (
            "Tensor::zeros({size}, resources.gradient_dtype())",
            "Tensor::zeros({size}, DType::f32)"),
        "gradients that are held in bf16 are copied before they are sent": (
            "sends_narrow = group.placement.reduce_dtype != resources.gradient_dtype();",
            "sends_narrow = group.placement.reduce_dtype != DType::f32;"),
    },
    ("sharding/plan/placement.cpp", "sharding_errors"): {
        "several micro-batches are added up in bf16": (
            "options.micro_batches == 1 && options.pipeline_parallel == 1,",
            "options.pipeline_parallel == 1,"),
        "the leaves of a grid are added up in bf16": (
            "check(!options.elastic && options.grid == 0,",
            "check(!options.elastic,"),
    },
    "sharding/strategy/gradient_buckets.cpp": {
        "skip a reduction": (
            "  close(b);\n  reduce(b);",
            "  close(b);\n  if (b != 1) reduce(b);"),
        "write gradients while they are being reduced": (
            "wait_for_communication(buffer.released);",
            ""),
        "wait for all communication before writing gradients": (
            "wait_for_communication(buffer.released);",
            "wait_for_communication(communication_stream().record());"),
        "later micro-batches overwrite the first": (
            "/*first=*/!states_[b].has_sum);",
            "/*first=*/true);"),
        "sum across the replicas twice": (
            "if (!resources_.group.sums_replicas_once) {",
            "{"),
        "leave out the sum across the replicas after the last micro-batch": (
            "if (resources_.group.sums_replicas_once) sum_replicas(b);",
            ""),
        "gradients of unused parameters are left as they were": (
            "for (const Tensor& gradient : parameter.gradients()) gradient.zero();",
            ""),
        "a bucket that was complete in one micro-batch is taken for complete in the next": (
            "  for (State& state : states_) state.completed = false;\n",
            ""),
    },
    "sharding/strategy/gathered_parameters.cpp": {
        "reshard too early": (
            "!slot.open && !holds(slot, b)) gather(b, direction);",
            "!holds(slot, b)) const_cast<Slot&>(slot).open = false, gather(b, direction);"),
        "use weights before they have arrived": (
            "wait_for_communication(slot.ready);",
            ""),
        "wait for all communication before using weights": (
            "wait_for_communication(slot.ready);",
            "wait_for_communication(communication_stream().record());"),
        "stale weights after a step": (
            "  ++generations_[b];\n",
            "  generations_[b] = 1;\n"),
        "gather again what a slot still holds": (
            "if (!holds(slot, b)) gather(b, direction);",
            "if (!slot.open) gather(b, direction);"),
    },
    "sharding/strategy/strategy.cpp": {
        "update from gradients that have not arrived": (
            "if (last && uses_communication_stream_) wait_for_communication",
            "if (last && false) wait_for_communication"),
        "count the norm once per rank where gradients are whole": (
            "alone ? nullptr : &communicators_.along(plan_.norm_axes)",
            "alone && !plan_.communicates ? nullptr : &communicators_.along({\"replica\", \"shard\"})"),
        "no gather before the first forward hook": (
            "for (const auto& group : groups_) group->prefetch_first();",
            ""),
        "write masters while gathers read them": (
            "if (uses_communication_stream_) wait_for_communication(communication_stream().record());\n"
            "  // The host",
            "// The host"),
        "a new strategy queues no gathers": (
            "  masters_changed(Writes::masters);\n",
            "  for (const auto& group : groups_) group->masters_changed(Writes::masters);\n"),
        "parameters may be frozen after the strategy was made": (
            "  check_trained_set();\n",
            ""),
    },
    "kernels/tree_reduce/cpu.cpp": {
        "average where gradients are to be added": (
            "const auto add = [](float a, float b) { return a + b; };",
            "const auto add = [](float a, float b) { return 0.5f * (a + b); };"),
        "sums over ranks in another order": (
            "std::bit_floor(count - 1)",
            "count - 1"),
    },
    "sharding/strategy/resident_parameters.cpp": {
        "a unit computes before its update": (
            "  wait_for_update(wholes_[bucket].updated);\n",
            ""),
        "forget to gather updated slices": (
            "const bool gathers = resources_.group.gathers_in_place();",
            "const bool gathers = false;"),
    },
    "sharding/strategy/exchange/slices.cpp": {
        "drop an empty shard's collective": (
            "shards_.all_gather(",
            "const Range mine = part_of(bucket.segments.back(), shards_.size(), shards_.rank());\n"
            "  if (mine.first >= bucket.place_of(bucket.parameter_count() - 1).end()) return;\n"
            "  shards_.all_gather("),
        "hsdp without the sum across replicas": (
            "replicas_->all_reduce(",
            "if (false) replicas_->all_reduce("),
    },
    "sharding/plan/plan.cpp": {
        "count every replica in the norm of several placements": (
            "mesh.position_along(rank, group.placement.replicate) == 0",
            "rank >= 0"),
        "reshard groups of ranks that are no neighbours": (
            "return {.number = shard / placement.reshard_ranks, "
            ".position = shard % placement.reshard_ranks};",
            "const int groups = shards / placement.reshard_ranks;\n"
            "  return {.number = shard % groups, .position = shard / groups};"),
        "f32 masters for frozen parameters": (
            "return parameter.trainable() ? placement.master_dtype : placement.compute_dtype;",
            "return parameter.name().empty() ? placement.compute_dtype : DType::f32;"),
    },
    "sharding/strategy/gradient_norm.cpp": {
        "the norm of this rank's part only": (
            "if (group == nullptr) return norm;",
            "if (group != nullptr) return norm;\n"
            "  if (group == nullptr) return norm;"),
    },
    "autograd/unit.cpp": {
        "tied weights reduced after their first use": (
            "if (--*runs_of_pass_ > 0) return;",
            "--*runs_of_pass_;"),
    },
    "sharding/plan/partition.cpp": {
        "reduce what is frozen": (
            "result.trained_count = static_cast<int>(trained);\n"
            "  result.trainable_elements = result.elements;\n"
            "  result.trainable_segments = static_cast<int>(result.segments.size());\n"
            "  append(result, trained, bucket.parameters.size(), layout, shards, owners);",
            "result.trained_count = static_cast<int>(trained);\n"
            "  append(result, trained, bucket.parameters.size(), layout, shards, owners);\n"
            "  result.trainable_elements = result.elements;\n"
            "  result.trainable_segments = static_cast<int>(result.segments.size());"),
        "a message for every vector of a bucket": (
            "(layout == Layout::rows && parameter.shape().rank() > 1)",
            "(layout == Layout::rows && parameter.shape().rank() > 0)"),
        "slices that lose the last rows": (
            "return ceil_div(shape[0], shards) * row_elements(shape);",
            "return shape[0] / shards * row_elements(shape);"),
    },
    "sharding/strategy/parameter_group.cpp": {
        "reduce before resharding": (
            "  parameters_->close(bucket, /*again_in_backward=*/false);\n",
            "  gradients_->complete(bucket);\n"
            "  parameters_->close(bucket, /*again_in_backward=*/false);\n"),
        "prefetch what has just been used": (
            "const int next = position + sign * ahead;",
            "const int next = position - sign * ahead;"),
        "gather frozen buckets in backward": (
            "const int first = direction == Direction::forward ? 0 : schedule.backward_end;",
            "const int first = 0;"),
        "leave a bucket open that no hook ended": (
            "if (in_backward_[b]) after_backward(b);",
            "(void)b;"),
        "experts begin with the values of the first rank's": (
            "group_.cut, experts_ == nullptr ? 0 : experts_->rank(),",
            "group_.cut, 0,"),
    },
    ("sharding/plan/held_part.cpp", "sharding_held_part"): {
        "queries, keys and values are cut as one": (
            "part.shape.rank()) / cut.groups;",
            "part.shape.rank()) / 1;"),
        "the padding of a vocabulary is read from behind it": (
            "std::clamp<std::int64_t>(of_experts.numel() - tensor * held, 0, held)",
            "held"),
        "every rank has the first experts": (
            "expert * of_experts.numel() : 0;",
            "0 * expert : 0;"),
        "a grid divides the channels of all groups together": (
            "parameter.shape()[cut.dimension] / cut.groups;",
            "parameter.shape()[cut.dimension];"),
    },
    ("sharding/plan/tensor_traffic.cpp", "sharding_tensor_traffic"): {
        "sums by rank are added on their way": (
            "traffic_.row_exchange == RowExchange::by_rank",
            "traffic_.row_exchange == RowExchange::by_rank && count == 0"),
        "norms are summed though every rank has all rows": (
            "    if (!shares_rows_) return;\n",
            ""),
        "the embedding's rows travel in f32": (
            "messages.scatter(1, messages.computed());",
            "messages.scatter(1, 4);"),
        "attention gathers its input once however many products read it": (
            "messages.pair(passes, attention_readers);",
            "messages.pair(passes, 1);"),
        "backward of a router gathers nothing": (
            "    gather(passes + 1);\n",
            "    gather(passes);\n"),
    },
    ("autograd/expert_layer.cpp", "sharding_divided_experts"): {
        "gate and up are one group of the sum over their channels": (
            "depths_of_part(outputs(), weight.cut().groups, i, parts())",
            "depths_of_part(outputs(), 1, i, parts())"),
    },
    ("autograd/operations/divided.cpp", "sharding_divided_experts"): {
        "the gradients of rows' weights are those of a rank's own channels": (
            "  sum_over_ranks(axis, x);\n  if",
            "  if"),
    },
    ("autograd/experts.cpp", "sharding_divided_experts"): {
        "every rank reads only its own rows again": (
            "needs_rows() ? whole_rows(axis, own) : Tensor()",
            "needs_rows() ? own_rows(axis, whole_rows(axis, own)) : Tensor()"),
    },
    ("autograd/expert_parts.cpp", "sharding_divided_experts"): {
        "parts of rows' weights are added one after the other": (
            "  tree_reduce(sum, parts, Reduction::sum);\n",
            "  sum.copy_from(parts.front());\n"
            "  for (std::size_t i = 1; i < parts.size(); ++i) {\n"
            "    tree_reduce(sum, std::vector{sum, parts[i]}, Reduction::sum);\n"
            "  }\n"),
        "parts are combined without the weights of rows": (
            "combine(sum.next(), rows(part), places, factors);",
            "combine(sum.next(), rows(part), places);"),
    },
    ("autograd/operations/travelling_rows.cpp", "sharding_divided"): {
        "rows are multiplied before they have arrived": (
            "    axis_->wait(arrival.event);\n",
            ""),
        "sums by rank are added in the order of their arrival": (
            "parts_[static_cast<std::size_t>(source)] =",
            "parts_[static_cast<std::size_t>((source + 2 * distance) % axis_->ranks())] ="),
        "a rank sends the sums of the rank before it": (
            "sums_for(rank_behind(*axis_, distance))",
            "sums_for(rank_behind(*axis_, -distance))"),
        "a rank receives the rows of the ranks behind it": (
            "const RowRange range = rows_of_rank(*axis_, rank_behind(*axis_, -distance));",
            "const RowRange range = rows_of_rank(*axis_, rank_behind(*axis_, distance));"),
    },
    ("sharding/comm/threads/threads.cpp", "sharding_comm"): {
        "a shift receives from the rank that it sends to": (
            "tensor_of((rank() - call.root + size()) % size(), i)",
            "tensor_of((rank() + call.root) % size(), i)"),
    },
    ("autograd/operations/divided.cpp", "sharding_divided"): {
        "the parts of a sum over outputs ignore their groups": (
            "depths_of_part(outputs, layer.cut().groups, i, count)",
            "depths_of_part(outputs, 1, i, count)"),
        "a norm's gradient is that of a rank's own rows": (
            "  sum_over_ranks(parameter_.tensor_axis(), own_);\n",
            ""),
        "a rank's sums of rows that it does not share are its own": (
            "    axis->all_reduce(sums);\n    return sums;",
            "    return sums;"),
    },
    ("autograd/operations/divided_loss.cpp", "sharding_divided"): {
        "the padding of the head's gradient is not written": (
            "gradient.slice(rows, gradient.size(0)).zero();",
            "(void)rows;"),
        "a later chunk of rows overwrites the head's gradient": (
            "    accumulate = Accumulate::yes;\n",
            ""),
        "a part without classes has one": (
            "{-1e30f, 0.0f, 0.0f}",
            "{0.0f, 1.0f, 0.0f}"),
    },
    ("sharding/plan/pipeline_schedule.cpp", "sharding_pipeline_schedule"): {
        "a rank keeps a micro-batch too many": (
            "shape.chunks == 1 ? behind + 1",
            "shape.chunks == 1 ? behind + 2"),
        "no gradients of weights are left for the bubble": (
            "split && k >= rank",
            "split"),
        "backward begins with the first chunk": (
            "shape.chunks - 1 - chunk",
            "chunk"),
    },
    ("sharding/plan/placement.cpp", "sharding_placement"): {
        "expert ranks are neighbours, and tensor ranks are not": (
            "  add(\"expert\", options.expert_parallel);\n  add(\"tensor\", options.tensor_parallel);\n",
            "  add(\"tensor\", options.tensor_parallel);\n  add(\"expert\", options.expert_parallel);\n"),
        "a grid suits tensor and context ranks one by one": (
            "grid % (options.tensor_parallel * options.context_parallel) == 0",
            "grid % options.tensor_parallel == 0"),
    },
    ("sharding/plan/options.cpp", "sharding_placement"): {
        "stages of a pipeline are data ranks": (
            "ranks / (options.tensor_parallel * options.pipeline_parallel)",
            "ranks / options.tensor_parallel"),
    },
    "sharding/plan/placement.cpp": {
        "reshard to a group of all shards": (
            "if (placement.layout == Layout::tensors || group == shards) return;",
            "if (placement.layout == Layout::tensors) return;"),
        "a rule's compute_dtype does nothing": (
            "rule.compute_dtype.value_or(*rest.compute_dtype)",
            "*rest.compute_dtype"),
        "experts of all ranks count once per rank in the norm": (
            "  axes.insert(axes.end(), experts.begin(), experts.end());\n",
            ""),
    },
    "sharding/strategy/mesh_communicators.cpp": {
        "drop communicators that queued calls use": (
            "if (!owned_.empty()) communication_stream().enqueue([owned = owned_] {});",
            ""),
    },
    "sharding/plan/nccl_memory.cpp": {
        "messages have the buffers of collectives": (
            "if (use.messages) connections += ranks - 1;",
            ""),
        "NCCL joins the ranks along one axis only": (
            "for (const int size : without) sizes.push_back(size * axis.size);",
            "sizes.push_back(axis.size);"),
    },
    "sharding/comm/launcher.cpp": {
        "a process that PMI started trains alone": (
            'if (const auto launch = find_mpi(environment, "PMI_SIZE", "PMI_RANK")) return launch;',
            ""),
        "a process that torchrun started trains alone": (
            "if (const auto launch = find_torchrun(environment)) return *launch;",
            "static_cast<void>(find_torchrun(environment));"),
    },
    "sharding/comm/threads/rendezvous.cpp": {
        "an abort misses a group that is split off after it": (
            "if (aborted) child->abort(*aborted);",
            ""),
    },
    "sharding/comm/threads/threads.cpp": {
        "threads wait longer than the deadline": (
            "std::make_shared<Group>(members, options.deadline)",
            "std::make_shared<Group>(\n      members, Deadline(2 * options.deadline.length(), options.deadline.clock()))"),
        "threads do not compare unequal parts": (
            "if (other == 0) return check_unequal_parts();",
            "if (other == 0) return;"),
    },
    "sharding/comm/communicator.cpp": {
        "results are trusted after an abort": (
            "if (const auto reason = aborted()) throw Error(*reason);",
            ""),
        "calls of a step are not compared": (
            "if (!call.compared) history_.add(call);",
            ""),
    },
    "sharding/comm/tree_exchange.h": {
        "sums across nodes come before those inside": (
            "  int own_node() const { return rank / per_node; }\n"
            "  int own_number() const { return rank % per_node; }\n"
            "  int rank_at(int node, int number) const { return node * per_node + number; }",
            "  int own_node() const { return rank % nodes(); }\n"
            "  int own_number() const { return rank / nodes(); }\n"
            "  int rank_at(int node, int number) const { return number * nodes() + node; }"),
    },
    "sharding/comm/tree_exchange.cpp": {
        "two stages of sums for nodes of any size": (
            "std::has_single_bit(static_cast<unsigned>(ranks_per_node))",
            "ranks_per_node > 0"),
        "sums of a node are sent to the wrong node": (
            "messages.sent.push_back({peer, pieces.sums[at(node)]});",
            "messages.sent.push_back({peer, pieces.sums[at(grid_.own_node())]});"),
    },
    "sharding/strategy/gradient_sums.cpp": {
        "sources of rows are summed in another order": (
            "parts.push_back(all.slice(i * each, (i + 1) * each));",
            "parts.insert(parts.begin() + (i + 1) / 2, all.slice(i * each, (i + 1) * each));"),
        "the gradient of the first source only": (
            "    tree_reduce(parts[0], parts, Reduction::sum);\n",
            ""),
    },
    "autograd/expert_rows.cpp": {
        "rows from other ranks are taken for the first expert's": (
            "groups.push_back(before + received[r * (n + 1) + e]);",
            "groups.push_back(before + received[r * (n + 1) + n]);"),
        "a source's gradient is formed from all rows": (
            "rows.values.values.slice(begin, begin + first[sum])",
            "rows.values.values.slice(begin - begin, first[sum])"),
        "rows that are sorted again overwrite those of the first source": (
            "next[r * n + e] = end;",
            "next[r * n + e] = offsets.back();"),
        "the copies of the first source make the rows of all": (
            "row = row_end, copy = copy_end;",
            "row = row_end;"),
        "rows that are sorted again travel back as they are": (
            "if (!sorts_again()) return rows;",
            "if (travel()) return rows;"),
    },
    "autograd/experts.cpp": {
        "weights of rows stay with their tokens": (
            "return at.to_experts(of_rows);",
            "return of_rows.numel() == at.places().numel() ? Journey{of_rows} : at.to_experts(of_rows);"),
    },
    "sharding/comm/call.cpp": {
        "unequal parts are cut by what the rank receives": (
            "part_of(call.inputs[i], call.sent_counts, peer, ranks)",
            "part_of(call.inputs[i], call.received_counts, peer, ranks)"),
        "unequal parts count as equal in the bytes sent": (
            "if (!call.sent_counts.empty()) {\n    for",
            "if (call.sent_counts.size() == 1) {\n    for"),
    },
}

# Faults of checkpoints as files, and the tests that are run.
TESTS_OF_CHECKPOINTS = ["test_sharding_checkpoint", "test_runtime_large_file", "test_runtime_pace"]
FAULTS_OF_CHECKPOINTS = {
    "runtime/file_calls.cpp": {
        "a short write counts as a whole one": (
            "bytes = bytes.subspan(static_cast<std::size_t>(written));",
            "bytes = {};"),
        "after a short write, writes past the cache go on": (
            "    if (!bytes.empty()) bypass_cache(false);  // the rest is no longer aligned\n",
            ""),
        "a file system without direct writes is an error": (
            "if (written < 0 && errno == EINVAL && bypasses_cache_) {",
            "if (written < 0 && errno == EINTR && bypasses_cache_) {"),
        "a rename does not wait for the disk": (
            "  sync_folder(calls, fs::absolute(to).parent_path());\n",
            ""),
    },
    "runtime/large_file.cpp": {
        "the rest of a large file is lost": (
            "  file_.append(std::span(buffer_.get(), filled_));\n  filled_ = 0;\n  file_.sync();",
            "  filled_ = 0;\n  file_.sync();"),
        "the rest of a large file is written past the cache": (
            "  file_.bypass_cache(false);  // the rest is not aligned\n",
            ""),
    },
    "runtime/pace.cpp": {
        "a paced thread counts no processor time": (
            "std::chrono::ceil<std::chrono::nanoseconds>(used / share_)",
            "std::chrono::ceil<std::chrono::nanoseconds>(0 * used / share_)"),
    },
    "sharding/checkpoint/manifest.cpp": {
        "a manifest is believed without its checksum": (
            "check(found == expected,",
            "check(!found.empty(),"),
        "slices may leave gaps": (
            "check(slice.elements.begin == covered,",
            "check(slice.elements.begin >= covered,"),
    },
    "sharding/checkpoint/reader.cpp": {
        "a block is believed without its checksum": (
            "return crc32c(bytes) == manifest_.files.at(name)",
            "return crc32c(bytes) == 0 || manifest_.files.at(name)"),
        "a slice is read from its beginning": (
            "slice->offset + (at - slice->elements.begin) * size",
            "slice->offset"),
    },
    "sharding/checkpoint/writer.cpp": {
        "the last short block has no checksum of its own": (
            "    description_.checksums.push_back(block_.value());\n  }\n  file_.sync();",
            "    description_.checksums.push_back(0);\n  }\n  file_.sync();"),
        "a file is not on the disk when the manifest names it": (
            "  file_.sync();\n",
            ""),
    },
    "sharding/checkpoint/folder.cpp": {
        "a checkpoint gets its name before its files' names are on the disk": (
            "  sync_folder(calls, unfinished);\n",
            ""),
        "a checkpoint is deleted under its name": (
            "  rename_durably(calls, path, deleted);\n  remove_folder(calls, deleted);",
            "  remove_folder(calls, path);"),
        "the last healthy checkpoint is deleted": (
            "if (!kept && step != last_healthy) old",
            "if (!kept && (step != last_healthy || step >= 0)) old"),
    },
}

# The same for ranks that own an emulated GPU each, and the tests that are run.
FAULTS_OF_TCP = {
    "sharding/comm/tcp/server.cpp": {
        "a rank that dies is not noticed": (
            "if (connection.rank && !connection.has_ended) {",
            "if (false) {"),
        "strangers stay": (
            "if (++strangers > kMostStrangers || clock_.now() > one->accepted + kStrangersTime) {",
            "if (++strangers > 1'000'000) {"),
        "a rank's damaged message is ignored": (
            "    connection.closes = true;\n    if (connection.rank) {",
            "    connection.closes = true;\n    connection.has_ended = true;\n    if (false) {"),
        "a rank of another run may join": (
            "if (hello.run != hash_of(own_.run)) {",
            "if (false) {"),
        "a rank that joins late does not learn of a failure": (
            "  if (failed_) connection.out += encoded(Kind::failed, *failed_);\n",
            ""),
    },
    "sharding/comm/tcp/job.cpp": {
        "an abort does not wait for the first reason": (
            "  clock_.wait(changed_, lock, clock_.now() + kAnswerTime, [&] { return failure_ || closed_; });\n",
            ""),
    },
    "sharding/comm/tcp/tcp.cpp": {
        "groups share their exchanges": (
            "    child.add(static_cast<std::uint64_t>(call.root));\n",
            ""),
    },
}

FAULTS_ON_GPUS = {
    ("autograd/expert_rows.cpp", "sharding_expert_exchange"): {
        "the slots of rows at the experts are their places": (
            "slots[places[i]] = static_cast<std::int32_t>(i);",
            "slots[i] = places[i];"),
    },
    ("sharding/comm/nccl/job.cpp", "sharding_emulated_nccl_job"): {
        "a call that never ends on the GPU has no deadline": (
            "  if (!own) own = find_overdue_call();\n",
            ""),
        "calls that have ended count as overdue": (
            "if (call->end.complete()) {",
            "if (false) {"),
        "an overdue call is not named": (
            "call->description, deadline_.count());",
            "\"a call\", deadline_.count());"),
        "the rank of an overdue call is not named": (
            "return failure_of(control_.rank(), control_.size(), *own);",
            "return own;"),
        "a call that is never queued has no deadline": (
            "if (deadline_.clock().now() > end) {",
            "if (deadline_.clock().now() > end && false) {"),
        "an exception leaves a group of NCCL calls open": (
            "if (open_) ncclGroupEnd();",
            ""),
        "broken links are not noticed": (
            "auto own = find_broken_link();",
            "std::optional<std::string> own;"),
        "each rank keeps its own reason of an abort": (
            "fail_with(control_.aborted().value_or(reason));",
            "fail_with(reason);"),
        "a split does not wait for the calls before it": (
            "  wait_until_ended();\n  const auto describe",
            "  const auto describe"),
        "communicators that are split off have buffers of their own": (
            "config.splitShare = 1;",
            "config.splitShare = 0;"),
    },
    ("sharding/comm/nccl/job.cpp", "tools_cuda_graph"): {
        "a capture goes on before NCCL's thread has recorded a call": (
            "  wait_until_queued(comm, describe);\n  if (is_capturing()) return watch_launches();\n",
            "  if (is_capturing()) return watch_launches();\n  wait_until_queued(comm, describe);\n"),
    },
    ("sharding/comm/nccl/job.cpp", "sharding_emulated_overlap"): {
        "sharding.nccl_ctas does not reach NCCL": (
            "  config.maxCTAs = ctas_;\n",
            ""),
    },
    ("sharding/comm/nccl/nccl.cpp", "sharding_emulated_windows"): {
        "a sum reads windows that other ranks still write": (
            "    barrier_of(call);\n    for (std::size_t i = 0; i < call.outputs.size(); ++i) {\n      Tensors sources;",
            "    for (std::size_t i = 0; i < call.outputs.size(); ++i) {\n      Tensors sources;"),
        "a rank changes sources that others still read": (
            "    if (call.collective != Collective::all_reduce) barrier_of(call);\n",
            ""),
        "sums never read windows": (
            "!windows.back()->reaches_peers()) return {};",
            "windows.back()->reaches_peers()) return {};"),
        "ranks do not compare the sizes of buffers": (
            "    control_.agree({.label = fmt::format(\"a buffer of {} bytes\", bytes)});\n",
            ""),
        "a buffer of NCCL is not cleared": (
            "    x.zero();\n    return x;",
            "    return x;"),
        "buffers are no windows": (
            "if (!options_.windows || size() == 1",
            "if (options_.windows || size() == 1"),
    },
    ("sharding/comm/nccl/job.cpp", "sharding_emulated_windows"): {
        "gathers into windows hold multiprocessors": (
            "  if (windows_allowed_) allow_windows(config);\n",
            ""),
        "windows that no tensor uses stay": (
            "  end_windows(Windows::unused);\n",
            ""),
        "windows that tensors use are ended": (
            "if (which == Windows::unused && window.use_count() > 1) continue;",
            "if (which == Windows::unused && window.use_count() > 99) continue;"),
        "windows stay registered when NCCL ends": (
            "  end_windows(Windows::all);\n",
            ""),
        "sums read windows of another group": (
            "if (window->comm() == comm && window->contains(x)) return window;",
            "if (comm != nullptr && window->contains(x)) return window;"),
    },
    ("sharding/comm/nccl/window.cpp", "sharding_emulated_windows"): {
        "sums read ranks that are out of reach": (
            "  if (ncclTeamLsa(comm_).nRanks != ranks) return;\n",
            ""),
        "handles that are no windows are read": (
            "  if (attributes.type != cudaMemoryTypeDevice) return;\n",
            ""),
    },
    ("runtime/foreign_memory.cpp", "sharding_emulated_windows"): {
        "memory of NCCL is not charged": (
            "    Allocator::Piece::charge(*end.allocator, end.block, /*allocates=*/true);\n",
            ""),
        "memory of NCCL is charged for ever": (
            "Piece::charge(*allocator, block, /*allocates=*/false);",
            "Piece::charge(*allocator, block, /*allocates=*/true);"),
    },
    ("sharding/strategy/gathered_parameters.cpp", "sharding_emulated_windows"): {
        "gather slots are no windows": (
            ".buffer = resources.buffer(size, placement.window_dtype)}",
            ".buffer = Tensor::zeros({size}, placement.window_dtype)}"),
    },
    ("sharding/strategy/resident_parameters.cpp", "sharding_emulated_windows"): {
        "the weights of ZeRO-1 are no windows": (
            "resources.group.gathers_in_place()\n",
            "false\n"),
    },
    ("sharding/plan/plan.cpp", "sharding_emulated_windows"): {
        "the plan counts no windows of ZeRO-1": (
            "(gathers_in_place() ? bucket_count() : gather_slots.count)",
            "gather_slots.count"),
    },
    ("sharding/strategy/gradient_buckets.cpp", "sharding_emulated_windows"): {
        "buckets of 16 bits are no windows": (
            "narrow_ = resources.buffer(largest, group.placement.reduce_dtype);",
            "narrow_ = Tensor::zeros({largest}, group.placement.reduce_dtype);"),
    },
    ("runtime/emulation/toolkit/nccl_windows.cpp", "runtime_emulated_nccl_windows"): {
        "an emulated window can be used after its end": (
            "  if (!Devices::get().windows.is_live(window)) {\n    throw",
            "  if (window == nullptr) {\n    throw"),
        "every rank is in an emulated LSA team": (
            "  if (peer < 0 || peer >= window->reach) {",
            "  if (peer < 0) {"),
    },
    ("sharding/comm/nccl/nccl.cpp", "sharding_emulated_overlap"): {
        "products count on the multiprocessors that NCCL holds": (
            "overlaps ? options.ctas : 0;",
            "overlaps ? 0 : 0;"),
        "with deterministic sums cuBLASLt's algorithms depend on NCCL": (
            "control.size() > 1 && !options.deterministic;",
            "control.size() > 1;"),
    },
    ("sharding/comm/world.cpp", "sharding_cuda_world"): {
        "threads with a GPU each take NCCL, and hang": (
            "const bool nccl = exchanges_by_nccl(options, /*processes=*/false);",
            "const bool nccl = options.communicator != CommunicatorKind::threads && kHasNccl && options.ranks > 1;"),
        "ranks that share GPUs are started as processes": (
            "options.ranks <= cuda::device_count()",
            "cuda::device_count() > 0"),
        "NCCL takes threads": (
            "options.ranks <= 1 ||",
            "options.ranks > 0 ||"),
    },
    ("sharding/comm/nccl/nccl.cpp", "sharding_cuda_nccl"): {
        "maxima are formed in the tree": (
            "      return false;\n    }\n    if (options_.deterministic) return true;",
            "    }\n    if (options_.deterministic) return true;"),
        "maxima by NCCL lose NaN": (
            "maximum ? ncclUint32 : type_of(to.dtype());",
            "type_of(to.dtype());"),
        "a negative color is NCCL's for no group": (
            "return color < 0 ? -2 * color - 1 : 2 * color;",
            "return color;"),
    },
    ("kernels/cuda/work_queue.h", "sharding_emulated_overlap"): {
        "a thread block that starts late begins with the piece of its own number": (
            "const unsigned number = draw([] { return thread_blocks(); });",
            "const unsigned number =\n"
            "          place == 0 ? blockIdx.x : draw([] { return thread_blocks(); }) + thread_blocks();"),
        "a producer's warp begins with the piece of its own number": (
            "number = draw([] { return thread_blocks() / blocks_of_cluster(); });",
            "number = place == 0 ? blockIdx.x\n"
            "                            : draw([] { return thread_blocks(); }) + thread_blocks();"),
    },
    ("sharding/comm/threads/threads.cpp", "sharding_emulated_threads"): {
        "all ranks read from rank 0 first": (
            "return (rank() + k) % size();",
            "return k % size();"),
    },
    ("sharding/comm/devices.cpp", "sharding_emulated_threads"): {
        "all ranks read sources of sums from rank 0 first": (
            "(static_cast<std::size_t>(own) + 1 + k) % sources.size();",
            "(static_cast<std::size_t>(own) * 0 + k) % sources.size();"),
    },
    ("tools/train/session.cpp", "tools_cuda_nccl"): {
        "the results of a step are trusted after an abort": (
            "  world_.raise_if_aborted();\n  const bool finite",
            "  const bool finite"),
    },
    ("tools/train/session_evaluation.cpp", "tools_cuda_nccl"): {
        "the results of an evaluation are trusted after an abort": (
            "  world_.raise_if_aborted();\n  ValidationLoss validation",
            "  ValidationLoss validation"),
    },
    ("sharding/strategy/strategy.cpp", "tools_cuda_nccl"): {
        "a model is saved after an abort": (
            "if (world_ != nullptr) world_->raise_if_aborted();",
            ""),
    },
}

BATCHES = [
    planting.Batch(planting.faults_of(FAULTS, tests=TESTS), folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of(FAULTS_OF_CHECKPOINTS, tests=TESTS_OF_CHECKPOINTS),
                   folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of(FAULTS_OF_TCP, tests=["test_sharding_tcp"]),
                   folder="build/planted_faults", preset="release"),
    planting.Batch(planting.faults_of(FAULTS_ON_GPUS), folder="build-emulated/planted_faults", preset="emulated",
                   options=("-D", "TESSERA_WERROR=ON"), selection=("~[cpu]",))]

if __name__ == "__main__":
    sys.exit(planting.run(sys.argv[1:], BATCHES))
