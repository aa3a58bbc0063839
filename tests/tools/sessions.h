// Training sessions on ranks that are threads, without a run's files.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/random.h"
#include "sharding/comm/stream.h"
#include "sharding/comm/threads/threads.h"
#include "tests/support/error_of.h"
#include "tests/support/findings.h"
#include "tests/tools/delays.h"
#include "tools/bench/compare.h"
#include "tools/data/soft_targets.h"
#include "tools/measure/workload.h"
#include "tools/train/optimizer.h"
#include "tools/train/resolve.h"
#include "tools/train/session.h"

namespace tessera::test {

/// body(session, source, world) on every rank; `source` has random tokens.
template <typename Body>
void with_session(const Config& config, int ranks, const Body& body, const Device& device = {}) {
  const ResolvedConfig run = resolve(config);
  run_ranks({.ranks = ranks, .device = device, .threads = 1}, [&](Communicator& world) {
    TrainingSession session(run, world);
    const BatchSource source = random_tokens(run.config.data, session.model().shape().vocab_size);
    body(session, source, world);
  });
}

/// Rows of `length` tokens below `vocabulary`, in two documents, of which unequal numbers of targets are
/// valid. second(row): where a row's second document starts; 0: there is one.
inline BatchSource two_documents(std::int64_t length, std::uint64_t vocabulary,
                                 const std::function<std::int64_t(std::int64_t row)>& second) {
  return BatchSource([=](std::int64_t step, std::int64_t first_row, std::int64_t rows) {
    std::vector<std::int32_t> inputs, targets, starts;
    for (std::int64_t row = first_row; row < first_row + rows; ++row) {
      const RandomStream random(3, "packed", static_cast<std::uint64_t>(step),
                                static_cast<std::uint64_t>(row));
      const std::int64_t cut = second(row);
      for (std::int64_t t = 0; t < length; ++t) {
        const auto at = static_cast<std::uint64_t>(t);
        inputs.push_back(static_cast<std::int32_t>(random.below(2 * at, vocabulary)));
        const auto next = static_cast<std::int32_t>(random.below(2 * at + 1, vocabulary));
        targets.push_back(t + 1 == cut || row % 5 == t % 4 ? -100 : next);
        starts.push_back(static_cast<std::int32_t>(t < cut ? 0 : cut));
      }
    }
    const Shape shape = {rows, length};
    const Tensor document_starts = Tensor::empty_on_host(shape, DType::i32);
    std::copy(starts.begin(), starts.end(), document_starts.data<std::int32_t>());
    return Batch{Tensor::from(inputs, shape), Tensor::from(targets, shape), document_starts};
  });
}

/// Rows of two documents as pairs of answers, with a reference.
inline BatchSource two_answers(const BatchSource& documents) {
  return {[=](std::int64_t step, std::int64_t first, std::int64_t rows) {
            Batch batch = documents.load(step, first, rows);
            batch.reference = Tensor::full(batch.targets.shape(), DType::f32, -2.0);
            return batch;
          },
          [](std::int64_t, std::int64_t, std::int64_t rows) { return rows; }};
}

/// The rows with soft targets: 0 to K tokens of a teacher, another number and other ones for each token.
inline BatchSource with_teacher(const BatchSource& source, const Distillation& distillation,
                                std::int64_t vocabulary) {
  const auto load = [=](std::int64_t step, std::int64_t first, std::int64_t rows) {
    Batch batch = source.load(step, first, rows);
    const auto targets = batch.targets.to_vector<std::int32_t>();
    const auto places = static_cast<std::size_t>(distillation.top_k), each = 1 + places;
    std::vector<std::int32_t> classes(targets.size() * each);
    std::vector<float> weights(classes.size());
    const auto length = static_cast<std::size_t>(batch.targets.size(1));
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const RandomStream random(4, "teacher", static_cast<std::uint64_t>(step),
                                static_cast<std::uint64_t>(first) * length + i);
      const std::size_t used = random.below(0, each);
      std::vector<TokenId> ids(places, 0);
      std::vector<float16> log_probabilities(places, kNoProbability);
      const std::uint64_t likeliest = random.below(1, static_cast<std::uint64_t>(vocabulary));
      for (std::size_t k = 0; k < used; ++k) {
        ids[k] = static_cast<TokenId>((likeliest + k) % static_cast<std::uint64_t>(vocabulary));
        log_probabilities[k] = float16(-0.25f - 0.5f * static_cast<float>(k));
      }
      write_soft_target(
          {std::span(classes).subspan(i * each, each), std::span(weights).subspan(i * each, each)},
          targets[i], distillation.weight, ids, log_probabilities);
    }
    const Shape shape{batch.targets.size(0), batch.targets.size(1),
                      std::ssize(classes) / batch.targets.numel()};
    batch.soft = {Tensor::from(classes, shape), Tensor::from(weights, shape)};
    return batch;
  };
  return {load,
          [=](std::int64_t step, std::int64_t first, std::int64_t rows) {
            return source.loss_terms(step, first, rows);
          },
          {},
          [=](std::int64_t step) { return source.rows_of(step); }};
}

/// The results of a training, in all their bits.
struct TrainedSession {
  std::vector<float> losses;
  std::vector<double> norms, router_losses;
  std::map<std::string, std::vector<float>> weights;
  /// The last step's, if it was watched.
  std::vector<UnitReadings> watch;
  bool operator==(const TrainedSession&) const = default;
};

/// The whole parameters, by their names. A collective.
inline std::map<std::string, std::vector<float>> weights_of(TrainingSession& session) {
  std::map<std::string, std::vector<float>> weights;
  session.strategy().visit_whole([&](const Parameter& parameter, const Tensor& whole) {
    weights[parameter.name()] = whole.to_vector<float>();
  });
  return weights;
}

/// The steps of a training.
struct Steps {
  int count = 2;
  Device device = {};
  /// None: random tokens.
  std::optional<BatchSource> source = {};
  /// If given: memory and traffic of the last step must be those of the footprint, but for rows on
  /// their way to experts.
  Findings* findings = nullptr;
  /// Rows of an evaluation behind the steps; its loss follows those of the steps. 0: none.
  std::int64_t evaluated_rows = 0;
  /// If given: messages and computation are delayed by random times.
  std::optional<std::uint64_t> delay_seed = {};
  /// On every rank before and after each step.
  std::function<void(TrainingSession&)> before = {};
  std::function<void(TrainingSession&, Communicator&, int step)> after = {};
};

inline void expect_footprint(const Config& config, TrainingSession& session, int rank,
                             std::int64_t bytes_sent, Findings& findings) {
  const Footprint predicted =
      footprint_of(session.strategy().plan(), rank, state_bytes(config, session.model()));
  const Footprint measured = measured_footprint(context().allocator().account(), bytes_sent);
  const std::string wrong =
      error_of([&] { check_footprint(predicted, measured, fmt::format("rank {}", rank)); });
  findings.expect(wrong == "no error", wrong);
}

inline TrainedSession train_session(const Config& config, int ranks, const Steps& steps = {}) {
  TrainedSession trained;
  const auto train = [&](TrainingSession& session, const BatchSource& random, Communicator& world) {
    TrainedSession mine;
    std::optional<Delays> delays;
    if (steps.delay_seed) delays.emplace(session, *steps.delay_seed, world.rank());
    const auto bytes = [&] {
      communication_stream().synchronize();
      return world.bytes_sent() - session.strategy().expert_bytes_sent();
    };
    for (int step = 1; step <= steps.count; ++step) {
      if (steps.before) steps.before(session);
      const std::int64_t sent = bytes();
      const StepResult result = session.step(step, steps.source.value_or(random));
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.gradient_norm);
      mine.router_losses.push_back(result.router_loss.value_or(0.0));
      mine.watch = result.watch;
      if (steps.findings != nullptr && step == steps.count) {
        expect_footprint(config, session, world.rank(), bytes() - sent, *steps.findings);
      }
      if (steps.after) steps.after(session, world, step);
    }
    if (steps.evaluated_rows > 0) {
      mine.losses.push_back(session.evaluate(steps.evaluated_rows, steps.source.value_or(random)));
    }
    if (config.train.ema > 0.0) {
      mine.losses.push_back(
          session.evaluate_ema(config.data.batch_size, steps.source.value_or(random)));
    }
    mine.weights = weights_of(session);
    if (world.rank() == 0) trained = mine;
  };
  with_session(config, ranks, train, steps.device);
  return trained;
}

}  // namespace tessera::test
