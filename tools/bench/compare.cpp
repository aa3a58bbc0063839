#include "tools/bench/compare.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "runtime/check.h"
#include "runtime/context.h"
#include "sharding/parameter_store.h"
#include "tools/bench/workload.h"
#include "tools/config/sharding_options.h"
#include "tools/data/checksum.h"
#include "tools/train/optimizer.h"
#include "tools/train/session.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

struct Part {
  const char* name;
  std::int64_t Footprint::*bytes;
};

constexpr Part kParts[] = {{"parameters", &Footprint::parameters},
                           {"gradients", &Footprint::gradients},
                           {"optimizer", &Footprint::optimizer},
                           {"communication memory", &Footprint::communication},
                           {"bytes sent per step", &Footprint::bytes_sent}};

/// The values that every rank passes, rank by rank; the same on all.
std::vector<std::vector<std::int64_t>> gather(const std::vector<std::int64_t>& values,
                                              Communicator& world) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor all = Tensor::zeros({world.size() * count}, DType::i64);
  const auto row = [&](int rank) { return all.slice(rank * count, (rank + 1) * count); };
  row(world.rank()).copy_from(Tensor::from(values, {count}));
  world.all_gather({all}, communication_stream(), "figures").synchronize();
  std::vector<std::vector<std::int64_t>> rows;
  for (int r = 0; r < world.size(); ++r) rows.push_back(row(r).to_vector<std::int64_t>());
  return rows;
}

/// The largest of what the ranks pass.
std::int64_t largest(std::int64_t value, Communicator& world) {
  std::int64_t most = value;
  for (const auto& row : gather({value}, world)) most = std::max(most, row.front());
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
    checksums[parameter.name()] = fnv1a({whole.raw(), whole.bytes()});
  });
  std::vector<std::uint64_t> in_order;
  for (const auto& [name, checksum] : checksums) in_order.push_back(checksum);
  return fnv1a(std::as_bytes(std::span(in_order)));
}

/// One strategy's training on this rank, from the start to the last step.
class Trial {
 public:
  struct Times {
    std::vector<double> step_ms, communication_ms, exposed_communication_ms;
  };

  Trial(const Config& config, const std::string& variant, Communicator& world)
      : config_(variant_of(config, variant)), variant_(variant), world_(world) {
    context().allocator().trim();
    context().allocator().reset_peaks();
    session_.emplace(config_, /*vocab_size=*/0, world);
    predicted_ = footprint_of(session_->model().units(), sharding_options(config_), world.size(),
                              world.rank(), optimizer_bytes_per_element(config_.optimizer));
  }

  StrategyFigures run(int steps, Times& times) {
    const auto source = random_tokens(config_.data, session_->model().vocab_size());
    StepResult result;
    for (int step = 1; step <= steps; ++step) result = train_step(step, steps, source, times);
    const Mesh mesh = recipe_of(sharding_options(config_), world_.size()).mesh;
    const auto row = static_cast<unsigned>(mesh.shards);
    StrategyFigures figures{.strategy = variant_,
                            .loss = result.loss,
                            .gradient_norm = result.gradient_norm,
                            .same_tree = mesh.replicas == 1 || std::has_single_bit(row),
                            .predicted = largest(predicted_, world_),
                            .measured = largest(measured_, world_),
                            .activations = largest(activations_, world_)};
    figures.weights_checksum = checksum_of(session_->strategy());
    check_ranks_agree(figures.weights_checksum);
    return figures;
  }

 private:
  StepResult train_step(int step, int steps, const TrainingSession::BatchSource& source,
                        Times& times) {
    const Stream& stream = communication_stream();
    world_.barrier(stream).synchronize();
    const std::int64_t sent = world_.bytes_sent();
    const double busy_ms = world_.busy_ms();
    context().profiler().reset_totals();
    const auto begin = Clock::now();
    const StepResult result = session_->step(step, source);
    stream.synchronize();
    const std::chrono::duration<double, std::milli> elapsed = Clock::now() - begin;
    measure(step, world_.bytes_sent() - sent);
    if (step > 1 || steps == 1) {  // the first fills the allocator's cache
      times.step_ms.push_back(elapsed.count());
      times.communication_ms.push_back(world_.busy_ms() - busy_ms);
      times.exposed_communication_ms.push_back(
          context().profiler().total_ms("exposed communication"));
    }
    return result;
  }

  /// Takes this rank's memory and traffic, and holds them against the prediction.
  void measure(int step, std::int64_t bytes_sent) {
    const MemoryAccount account = context().allocator().account();
    measured_ = {.parameters = account[Category::parameters].peak,
                 .gradients = account[Category::gradients].peak,
                 .optimizer = account[Category::optimizer].peak,
                 .communication = account[Category::communication].peak,
                 .bytes_sent = bytes_sent};
    activations_ = account[Category::activations].peak;
    for (const Part& part : kParts) {
      check(measured_.*part.bytes == predicted_.*part.bytes,
            "{}, step {}: {}: {} were predicted and {} measured", variant_, step, part.name,
            predicted_.*part.bytes, measured_.*part.bytes);
    }
  }

  void check_ranks_agree(std::uint64_t checksum) {
    const auto rows = gather({std::bit_cast<std::int64_t>(checksum)}, world_);
    for (const auto& row : rows) {
      check(row == rows.front(), "{}: ranks end with different weights", variant_);
    }
  }

  const Config config_;
  const std::string variant_;
  Communicator& world_;
  std::optional<TrainingSession> session_;
  Footprint predicted_;
  Footprint measured_;
  std::int64_t activations_ = 0;
};

}  // namespace

bool same_bits(const StrategyFigures& a, const StrategyFigures& b) {
  return std::bit_cast<std::uint32_t>(a.loss) == std::bit_cast<std::uint32_t>(b.loss) &&
         std::bit_cast<std::uint64_t>(a.gradient_norm) ==
             std::bit_cast<std::uint64_t>(b.gradient_norm) &&
         a.weights_checksum == b.weights_checksum;
}

bool agree(const StrategyFigures& a, const StrategyFigures& b) {
  if (a.same_tree == b.same_tree) return same_bits(a, b);
  const auto close = [](double x, double y) { return std::abs(x - y) <= 1e-6 * std::abs(x); };
  return close(a.loss, b.loss) && close(a.gradient_norm, b.gradient_norm);
}

std::vector<StrategyFigures> compare_strategies(const ComparisonOptions& options,
                                                Communicator& world) {
  const std::size_t count = options.strategies.size();
  std::vector<StrategyFigures> all(count);
  std::vector<Trial::Times> times(count);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      const StrategyFigures figures =
          Trial(options.config, options.strategies[i], world).run(options.steps, times[i]);
      check(round == 0 || same_bits(figures, all[i]), "{}: round {} ends with other bits",
            figures.strategy, round + 1);
      all[i] = figures;
    }
  }
  const DataConfig& data = options.config.data;
  for (std::size_t i = 0; i < count; ++i) {
    all[i].step_ms = median(times[i].step_ms);
    all[i].communication_ms = median(times[i].communication_ms);
    all[i].exposed_communication_ms = median(times[i].exposed_communication_ms);
    all[i].tokens_per_second =
        static_cast<double>(data.batch_size * data.sequence_length) / all[i].step_ms * 1e3;
  }
  return all;
}

}  // namespace tessera
