#include "tools/replay/bisect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "sharding/comm/launcher.h"
#include "tools/config/keys.h"
#include "tools/replay/replayed_rank.h"
#include "tools/replay/state_log.h"
#include "tools/watch/operation_log.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Which list of a rank's tensors one is in. In the order in which they are compared.
enum class Kind { state, operation, gradient };

struct NamedChecksum {
  std::string name, unit;
  std::uint32_t checksum = 0;
};

/// One rank's tensors of a step.
struct StepTensors {
  std::vector<NamedChecksum> state;
  std::vector<LoggedOperation> operations;
  std::vector<NamedChecksum> gradients;
};

/// A tensor that differs.
struct Difference {
  Kind kind = Kind::state;
  int rank = 0;
  /// In the rank's list.
  std::size_t index = 0;
  /// For an operation. `before`: the tensor differed already, so a message or a batch brought it.
  std::size_t argument = 0;
  bool before = false;
};

std::vector<NamedChecksum> checksums_of(const std::vector<StateTensor>& tensors) {
  std::vector<NamedChecksum> checksums;
  for (const StateTensor& tensor : tensors) {
    const Tensor host = tensor.values.to_host();
    checksums.push_back({tensor.name, tensor.unit,
                         crc32c({static_cast<const std::byte*>(host.raw()), host.bytes()})});
  }
  return checksums;
}

/// Results of ranks that are threads.
template <typename T>
class OfRanks {
 public:
  void put(const Communicator& world, T value) {
    const std::lock_guard lock(mutex_);
    values_.resize(static_cast<std::size_t>(world.size()));
    values_[static_cast<std::size_t>(world.rank())] = std::move(value);
  }
  std::vector<T> take() { return std::move(values_); }

 private:
  std::mutex mutex_;
  std::vector<T> values_;
};

/// The step's tensors on every rank. The first of two passes fills memory, so that parts of tensors
/// that no operation writes have the same bytes in equal runs.
std::vector<StepTensors> logs_of(const RecordedRun& run, std::int64_t step) {
  OfRanks<StepTensors> logs;
  replay_to(run, {.first = step, .last = step}, {}, [&](ReplayedRank& rank) {
    TrainingSession& session = rank.session;
    StepTensors log;
    log.state = checksums_of(state_before_step(session));
    OperationLog first(session, rank.world.rank()), second(session, rank.world.rank());
    session.observe(step, rank.source, first);
    session.observe(step, rank.source, second);
    log.operations = second.operations();
    log.gradients = checksums_of(gradients_of(session));
    logs.put(rank.world, std::move(log));
  });
  return logs.take();
}

/// The values of the tensor in one of the runs.
std::vector<double> values_in(const RecordedRun& run, std::int64_t step, const Difference& at) {
  std::vector<double> values;
  replay_to(run, {.first = step, .last = step}, {}, [&](ReplayedRank& rank) {
    TrainingSession& session = rank.session;
    const bool here = rank.world.rank() == at.rank;
    if (here && at.kind == Kind::state) {
      values = values_of(state_before_step(session)[at.index].values);
    }
    TensorCapture first({.number = -1});
    TensorCapture second({.number = static_cast<std::int64_t>(at.index),
                          .argument = at.argument,
                          .before = at.before});
    session.observe(step, rank.source, first);
    session.observe(step, rank.source, second);
    if (here && at.kind == Kind::operation) values = second.values();
    if (here && at.kind == Kind::gradient)
      values = values_of(gradients_of(session)[at.index].values);
  });
  return values;
}

std::optional<Difference> first_in(Kind kind, int rank, const std::vector<NamedChecksum>& a,
                                   const std::vector<NamedChecksum>& b) {
  check(a.size() == b.size(), "rank {} has other parameters in the two runs", rank);
  for (std::size_t i = 0; i < a.size(); ++i) {
    check(a[i].name == b[i].name, "rank {} has {} in one run and {} in the other", rank, a[i].name,
          b[i].name);
    if (a[i].checksum != b[i].checksum) return Difference{.kind = kind, .rank = rank, .index = i};
  }
  return std::nullopt;
}

std::optional<Difference> first_in(int rank, const std::vector<LoggedOperation>& a,
                                   const std::vector<LoggedOperation>& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto types = [](const LoggedOperation& operation) {
      std::vector<std::string> all = {operation.name};
      for (const LoggedTensor& tensor : operation.tensors) all.push_back(tensor.type);
      return fmt::format("{}", fmt::join(all, " "));
    };
    check(types(a[i]) == types(b[i]),
          "{}: one run has {} and the other {}; their kernels or options differ",
          to_string(a[i].place), types(a[i]), types(b[i]));
    std::optional<Difference> first;
    for (std::size_t t = 0; t < a[i].tensors.size(); ++t) {
      const LoggedTensor &in_a = a[i].tensors[t], &in_b = b[i].tensors[t];
      if (in_a.after == in_b.after) continue;
      const bool written = in_a.was_written() || in_b.was_written();
      // A tensor that the operation reads differed before those that it writes.
      if (first && written) continue;
      first = Difference{
          .kind = Kind::operation, .rank = rank, .index = i, .argument = t, .before = !written};
      if (!written) break;
    }
    if (first) return first;
  }
  check(a.size() == b.size(), "rank {} runs {} operations in one run and {} in the other", rank,
        a.size(), b.size());
  return std::nullopt;
}

std::optional<Difference> first_difference(const std::vector<StepTensors>& a,
                                           const std::vector<StepTensors>& b) {
  const auto ranks = static_cast<int>(a.size());
  const auto of = [](const std::vector<StepTensors>& logs, int rank) -> const StepTensors& {
    return logs[static_cast<std::size_t>(rank)];
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const auto found = first_in(Kind::state, rank, of(a, rank).state, of(b, rank).state);
    if (found) return found;
  }
  std::optional<Difference> first;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& operations = of(a, rank).operations;
    const auto found = first_in(rank, operations, of(b, rank).operations);
    if (!found) continue;
    const auto place_of = [&](const Difference& difference) {
      return of(a, difference.rank).operations[difference.index].place;
    };
    if (!first || place_of(*found) < place_of(*first)) first = found;
  }
  for (int rank = 0; rank < ranks && !first; ++rank) {
    first = first_in(Kind::gradient, rank, of(a, rank).gradients, of(b, rank).gradients);
  }
  return first;
}

/// "h.1.attn.c_attn.weight of h.1 on rank 1, before the step".
std::string name_of(const Difference& at, const StepTensors& log) {
  if (at.kind == Kind::operation) {
    const LoggedOperation& operation = log.operations[at.index];
    return fmt::format("{}, which {} {}, tensor {} of its arguments, in {}",
                       operation.tensors[at.argument].type, operation.name,
                       at.before ? "reads" : "writes", at.argument, to_string(operation.place));
  }
  const NamedChecksum& tensor =
      at.kind == Kind::state ? log.state[at.index] : log.gradients[at.index];
  return fmt::format("{}{} of {} on rank {}, {} the step",
                     at.kind == Kind::state ? "" : "the gradient of ", tensor.name, tensor.unit,
                     at.rank, at.kind == Kind::state ? "before" : "after the backward pass of");
}

/// "1 of 768 elements differ, most at element 17: 0.25 and 0.75".
std::string size_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || a.size() != b.size()) return "its elements are not numbers of a model";
  std::size_t differ = 0, most = 0;
  double largest = -1.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ++differ;
    const double size = std::abs(a[i] - b[i]);
    const double ordered = std::isnan(size) ? std::numeric_limits<double>::infinity() : size;
    if (ordered <= largest) continue;
    largest = ordered;
    most = i;
  }
  if (differ == 0) return "its elements are equal numbers, but not equal bits";
  return fmt::format("{} of {} elements differ, by at most {:.6g} at element {}: {:.9g} and {:.9g}",
                     differ, a.size(), largest, most, a[most], b[most]);
}

/// Whether two configurations may differ in this key.
bool may_differ(std::string_view key) {
  const auto is_in = [&](std::string_view section) { return key.starts_with(section); };
  if (key == "runtime.ranks" || key == "runtime.compute_dtype" || key == "train.elastic")
    return false;
  if (key == "data.train" || key == "data.mixture" || key == "data.val" ||
      key == "data.validation" || key == "data.hellaswag")
    return true;
  if (key == "model.init_from" || key == "model.dropout" || key == "moe.bias_rate") return true;
  if (key == "sharding.timeout" || key == "sharding.communicator") return true;
  if (key == "optimizer.master_dtype" || key == "optimizer.name" ||
      key == "optimizer.state_dtype" || key == "optimizer.gradient_dtype")
    return false;
  return is_in("runtime.") || is_in("kernels.") || is_in("train.") || is_in("sample.") ||
         is_in("optimizer.");
}

/// The numbers of the steps since `first`, as both runs compute them again.
std::map<std::int64_t, StepNumbersSeen> repeated_numbers(const RecordedRun& run,
                                                         const StepsToReplay& steps) {
  std::map<std::int64_t, StepNumbersSeen> numbers;
  replay_to(
      run, steps,
      [&](std::int64_t step, const StepNumbersSeen& of_step) { numbers[step] = of_step; },
      [&](ReplayedRank& rank) {
        const StepResult result = replay_step(run, rank);
        if (rank.world.rank() == 0) numbers[rank.step] = {result.loss, result.gradient_norm};
      });
  return numbers;
}

/// A step that differs, and its numbers.
struct StepDifference {
  std::int64_t step = 0;
  StepNumbersSeen a, b;
  /// The last step before it that is known to be equal; 0: none.
  std::int64_t equal = 0;
};

std::optional<StepDifference> first_in(const std::map<std::int64_t, StepNumbersSeen>& a,
                                       const std::map<std::int64_t, StepNumbersSeen>& b) {
  std::int64_t equal = 0, common = 0;
  for (const auto& [step, of_a] : a) {
    const auto of_b = b.find(step);
    if (of_b == b.end()) continue;
    ++common;
    if (of_a != of_b->second) return StepDifference{step, of_a, of_b->second, equal};
    equal = step;
  }
  check(common > 0, "the runs have no step in common");
  return std::nullopt;
}

}  // namespace

std::vector<std::string> incomparable_keys(const Config& a, const Config& b) {
  Config of_a = a, of_b = b;
  const std::vector<Key> keys_a = keys_of(of_a), keys_b = keys_of(of_b);
  std::vector<std::string> differ;
  for (std::size_t i = 0; i < keys_a.size(); ++i) {
    if (!may_differ(keys_a[i].name) && keys_a[i].text() != keys_b[i].text()) {
      differ.push_back(keys_a[i].name);
    }
  }
  return differ;
}

std::vector<std::string> bisect(const fs::path& path_a, const fs::path& path_b) {
  check(find_launch().kind == Launch::Kind::none,
        "bisect starts the runs' ranks as threads; start it without a launcher");
  const RecordedRun a(path_a), b(path_b);
  const std::vector<std::string> keys = incomparable_keys(a.config(), b.config());
  check(keys.empty(), "{} and {} cannot be compared: they differ in {}", path_a.string(),
        path_b.string(), fmt::join(keys, ", "));
  std::optional<StepDifference> found = first_in(a.steps(), b.steps());
  if (!found) {
    return {fmt::format("{} and {} have the same losses and norms in every step that both log",
                        path_a.string(), path_b.string())};
  }
  if (found->step > found->equal + 1) {  // not every step has a line
    const StepsToReplay between = {.first = found->equal + 1, .last = found->step};
    const std::int64_t equal = found->equal;
    found = first_in(repeated_numbers(a, between), repeated_numbers(b, between));
    check(found.has_value(), "steps {} to {} are equal when they run again", equal + 1,
          between.last);
  }
  std::vector<std::string> lines = {
      fmt::format("step {} is the first that differs: {} in {}, {} in {}", found->step,
                  to_string(found->a), path_a.string(), to_string(found->b), path_b.string())};
  const std::vector<StepTensors> logs = logs_of(a, found->step);
  const std::optional<Difference> at = first_difference(logs, logs_of(b, found->step));
  if (!at) {
    lines.push_back(
        "every tensor of the step is equal when it runs again: compare the builds and the "
        "machines");
    return lines;
  }
  lines.push_back(fmt::format(
      "the first tensor that differs is {}; {}",
      name_of(*at, logs[static_cast<std::size_t>(at->rank)]),
      size_of_difference(values_in(a, found->step, *at), values_in(b, found->step, *at))));
  return lines;
}

}  // namespace tessera
