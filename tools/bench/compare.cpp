#include "tools/bench/compare.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cores.h"
#include "runtime/hash.h"
#include "sharding/comm/pin.h"
#include "sharding/comm/stream.h"
#include "tools/config/kernel_options.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/median.h"
#include "tools/measure/workload.h"
#include "tools/plan/advice.h"
#include "tools/train/gather.h"
#include "tools/train/optimizer.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct StepTimes {
  double step_ms, communication_ms, exposed_communication_ms;
};

struct Part {
  const char* name;
  std::int64_t Footprint::*bytes;
};

constexpr Part kParts[] = {{"parameters", &Footprint::parameters},
                           {"gradients", &Footprint::gradients},
                           {"optimizer", &Footprint::optimizer},
                           {"communication memory", &Footprint::communication},
                           {"bytes sent per step", &Footprint::bytes_sent}};

/// The largest value of all ranks.
std::int64_t largest(std::int64_t value, Communicator& world) {
  std::int64_t most = value;
  for (const auto& row : gather_numbers({value}, world)) most = std::max(most, row.front());
  return most;
}

Footprint largest(const Footprint& footprint, Communicator& world) {
  Footprint most;
  for (const Part& part : kParts) most.*part.bytes = largest(footprint.*part.bytes, world);
  return most;
}

std::uint64_t checksum_of(Strategy& strategy) {
  std::map<std::string, std::uint64_t> checksums;
  strategy.visit_whole([&](const Parameter& parameter, const Tensor& whole) {
    const Tensor here = whole.to_host();
    Fnv1a hash;
    hash.add(std::span(here.raw(), static_cast<std::size_t>(here.bytes())));
    checksums[parameter.name()] = hash.value();
  });
  Fnv1a hash;
  for (const auto& [name, checksum] : checksums) hash.add(checksum);
  return hash.value();
}

/// Threads of a rank: those of its world, unless the row has its own number.
int threads_of(const Config& config) {
  return config.runtime.threads > 0 ? static_cast<int>(config.runtime.threads)
                                    : context().threads().size();
}

/// One row's training on this rank of `world`, step by step. It has its own RankContext, so that
/// several can be in progress, each with its own memory account.
class Trial {
 public:
  Trial(const Compared& row, Communicator& world)
      : config_(row.config),
        name_(row.name),
        world_(world),
        context_({.device = context().device(),
                  .rank = world.rank(),
                  .world_size = world.size(),
                  .threads = threads_of(config_),
                  .seed = static_cast<std::uint64_t>(config_.train.seed)}) {
    here([&] {
      choose_kernels(config_);
      if (config_.runtime.pin) core_ = bind_workers_of_rank(world);
      session_.emplace(resolve(config_), world);
      predicted_ = footprint_of(session_->strategy().plan(), world.rank(),
                                state_bytes(config_, session_->model()));
      communication_stream().synchronize();
    });
  }

  ~Trial() {
    const ContextGuard guard(context_);
    session_.reset();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// One step, to the end of its communication: none is left to overlap with another trial's step.
  StepTimes step() {
    StepTimes times;
    here([&] { times = timed_step(); });
    return times;
  }

  /// The figures without the times.
  RowFigures figures() {
    RowFigures figures;
    here([&] { figures = figures_here(); });
    return figures;
  }

 private:
  /// Calls `body` in the trial's context. The advice is about its own configuration.
  void here(const std::function<void()>& body) {
    const ContextGuard guard(context_);
    with_training_advice(config_, world_, body);
  }

  StepTimes timed_step() {
    std::optional<BoundThread> bound;
    if (core_) bound.emplace(*core_);
    const Stream& stream = communication_stream();
    const std::int64_t sent = world_.bytes_sent();
    const std::int64_t to_experts = session_->strategy().expert_bytes_sent();
    const double busy_ms = world_.busy_ms();
    context_.profiler().reset_totals();
    const auto begin = SteadyClock::now();
    result_ =
        session_->step(++steps_, random_tokens(config_.data, session_->model().shape().vocab_size));
    stream.synchronize();
    const std::chrono::duration<double, std::milli> elapsed = SteadyClock::now() - begin;
    expert_bytes_sent_ = session_->strategy().expert_bytes_sent() - to_experts;
    measure(world_.bytes_sent() - sent - expert_bytes_sent_);
    return {.step_ms = elapsed.count(),
            .communication_ms = world_.busy_ms() - busy_ms,
            .exposed_communication_ms = context_.profiler().total_ms("exposed communication")};
  }

  RowFigures figures_here() {
    const Mesh& mesh = session_->strategy().plan().mesh;
    const int shards = replica_size(mesh);
    const bool even_rows = std::has_single_bit(static_cast<unsigned>(shards));
    RowFigures figures{.name = name_,
                       .strategy = variant_name(sharding_options(config_)),
                       .parameters = parameter_count(session_->model()),
                       .loss = result_.loss,
                       .gradient_norm = result_.gradient_norm,
                       .summed_apart = shards == mesh.world_size() || even_rows ? 0 : shards,
                       .predicted = largest(predicted_, world_),
                       .measured = largest(measured_, world_),
                       .expert_bytes_sent = largest(expert_bytes_sent_, world_),
                       .total = largest(total_, world_),
                       .activations = largest(activations_, world_)};
    figures.weights_checksum = checksum_of(session_->strategy());
    for (const auto& row :
         gather_numbers({std::bit_cast<std::int64_t>(figures.weights_checksum)}, world_)) {
      check(std::bit_cast<std::uint64_t>(row.front()) == figures.weights_checksum,
            "{}: ranks end with different weights", name_);
    }
    return figures;
  }

  /// Reads this rank's memory and traffic and checks them against the prediction.
  void measure(std::int64_t bytes_sent) {
    const MemoryAccount account = context_.allocator().account();
    measured_ = measured_footprint(account, bytes_sent);
    total_ =
        measured_.parameters + measured_.gradients + measured_.optimizer + measured_.communication;
    activations_ = account[Category::activations].peak;
    check_footprint(predicted_, measured_, fmt::format("{}, step {}", name_, steps_));
  }

  const Config config_;
  const std::string name_;
  Communicator& world_;
  RankContext context_;
  std::optional<int> core_;  // of the calling thread, if the row's threads are bound
  std::optional<TrainingSession> session_;
  int steps_ = 0;
  StepResult result_;
  Footprint predicted_;
  Footprint measured_;
  std::int64_t expert_bytes_sent_ = 0;
  std::int64_t total_ = 0;
  std::int64_t activations_ = 0;
};

/// A row's training on its own ranks, which are the first ones of `world`. The others wait, so they
/// do not take a core from it.
class RankedTrial {
 public:
  RankedTrial(const Compared& row, Communicator& world) : world_(world) {
    const int asked = static_cast<int>(row.config.runtime.ranks);
    const int ranks = asked > 0 ? asked : world.size();
    const bool takes_part = world.rank() < ranks;
    if (ranks < world.size()) part_ = world.split(takes_part ? 0 : 1);
    if (takes_part) trial_.emplace(row, part_ ? *part_ : world);
  }

  /// Zeros on a rank that takes no part.
  StepTimes step() {
    world_.barrier(communication_stream()).synchronize();
    return trial_ ? trial_->step() : StepTimes{};
  }
  /// No value on a rank that takes no part.
  std::optional<RowFigures> figures() {
    return trial_ ? std::optional(trial_->figures()) : std::nullopt;
  }

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> part_;  // of the world, if not all ranks take part
  std::optional<Trial> trial_;
};

/// The times of a row's steps, and their ratios to the first row's steps right before them.
struct Pairs {
  std::vector<double> step_ms, ratio, communication_ms, exposed_communication_ms;

  void add(const StepTimes& times, const StepTimes& first) {
    step_ms.push_back(times.step_ms);
    ratio.push_back(times.step_ms / first.step_ms);
    communication_ms.push_back(times.communication_ms);
    exposed_communication_ms.push_back(times.exposed_communication_ms);
  }
};

/// Keeps a round's result, which must have the bits of the rounds before.
void keep(RowFigures& kept, const std::optional<RowFigures>& found) {
  if (!found) return;
  check(kept.name.empty() || same_bits(kept, *found), "{}: a repetition ends with other bits",
        found->name);
  kept = *found;
}

}  // namespace

bool same_bits(const RowFigures& a, const RowFigures& b) {
  return std::bit_cast<std::uint32_t>(a.loss) == std::bit_cast<std::uint32_t>(b.loss) &&
         std::bit_cast<std::uint64_t>(a.gradient_norm) ==
             std::bit_cast<std::uint64_t>(b.gradient_norm) &&
         a.weights_checksum == b.weights_checksum;
}

bool agree(const RowFigures& a, const RowFigures& b) {
  if (a.summed_apart == b.summed_apart) return same_bits(a, b);
  const auto close = [](double x, double y) { return std::abs(x - y) <= 1e-6 * std::abs(x); };
  return close(a.loss, b.loss) && close(a.gradient_norm, b.gradient_norm);
}

Footprint measured_footprint(const MemoryAccount& account, std::int64_t bytes_sent) {
  return {.parameters = account[Category::parameters].peak,
          .gradients = account[Category::gradients].peak,
          .optimizer = account[Category::optimizer].peak,
          .communication = account[Category::communication].peak,
          .bytes_sent = bytes_sent};
}

void check_footprint(const Footprint& predicted, const Footprint& measured,
                     std::string_view where) {
  for (const Part& part : kParts) {
    check(measured.*part.bytes == predicted.*part.bytes,
          "{}: {}: {} bytes were predicted and {} measured", where, part.name,
          predicted.*part.bytes, measured.*part.bytes);
  }
}

std::vector<RowFigures> compare_rows(const ComparisonOptions& options, Communicator& world) {
  const std::size_t count = options.rows.size();
  std::vector<RowFigures> all(count);
  std::vector<Pairs> pairs(count);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = count == 1 ? 0 : 1; i < count; ++i) {
      RankedTrial first(options.rows.front(), world);
      std::optional<RankedTrial> other;
      if (i > 0) other.emplace(options.rows[i], world);
      for (int step = 0; step < options.steps; ++step) {
        const StepTimes first_times = first.step();
        const StepTimes times = other ? other->step() : first_times;
        if (step == 0 && options.steps > 1) continue;  // it fills the allocators' caches
        pairs.front().add(first_times, first_times);
        if (other) pairs[i].add(times, first_times);
      }
      keep(all.front(), first.figures());
      if (other) keep(all[i], other->figures());
    }
  }
  if (world.rank() != 0) return {};
  for (std::size_t i = 0; i < count; ++i) {
    const auto [least, most] = std::minmax_element(pairs[i].ratio.begin(), pairs[i].ratio.end());
    all[i].step_ms = median(pairs[i].step_ms);
    all[i].step_ratio = median(pairs[i].ratio);
    all[i].least_step_ratio = *least;
    all[i].most_step_ratio = *most;
    all[i].communication_ms = median(pairs[i].communication_ms);
    all[i].exposed_communication_ms = median(pairs[i].exposed_communication_ms);
    all[i].tokens_per_second =
        static_cast<double>(tokens_per_step(options.rows[i].config.data)) / all[i].step_ms * 1e3;
  }
  return all;
}

}  // namespace tessera
