// The parts that all rungs of the ladder share: the model, the batches and the report.
//
// A rung is a program that trains one small model, a mixture of experts with four blocks, on N ranks.
// Each step has a batch of N parts, and rank r computes the loss of part r. All rungs find the same
// losses, bit for bit: they differ in who holds which bytes, and in the messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/engine.h"
#include "models/language_model.h"
#include "optim/adamw.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "sharding/comm/communicator.h"
#include "sharding/comm/options.h"
#include "sharding/comm/stream.h"

namespace tessera::ladder {

constexpr int kSteps = 8;
/// A row's tokens, and the channels of the residual stream.
constexpr std::int64_t kTokens = 32, kWidth = 64;
constexpr std::int64_t kVocabulary = 256;
constexpr std::uint64_t kSeed = 1;
constexpr double kLearningRate = 0.01;
/// Without weight decay an optimizer need not know which parameters are vectors.
constexpr AdamWOptions kAdamW = {.weight_decay = 0.0};

/// The losses of all steps' parts: the row of a step has N.
using Losses = std::vector<std::vector<float>>;

/// A part of a batch, kTokens + 1 tokens: one row that begins anywhere and goes on by a rule, which the model can
/// learn.
std::vector<std::int32_t> row(int step, int part);

/// A rank that trains. A rung is a class derived from it.
class Rung : public UnitHooks {
 public:
  Rung(Communicator& world, int parts, Losses& losses);

  /// Runs all steps.
  void train();
  /// Calls `watch` whenever a unit is about to compute, after before_use and before_gradients. For graders.
  using Watch = std::function<void(int step, bool backward, const Unit& unit)>;
  void watch(Watch watch) { watch_ = std::move(watch); }
  /// Calls `watch` whenever computation is about to wait for communication; at the end of a step, which waits for all
  /// of it, with null.
  using WatchWait = std::function<void(const Event* event)>;
  void watch_waits(WatchWait watch) { watch_wait_ = std::move(watch); }
  /// Bytes that the rank holds between steps: values, gradients, moments and slots.
  std::int64_t state_bytes() const { return state_bytes_; }
  /// Bytes sent per step, after the first.
  std::int64_t bytes_per_step() const { return bytes_ / (kSteps - 1); }

 protected:
  /// With another model. Null: the rung has weights by hand, and no units.
  Rung(Communicator& world, int parts, Losses& losses, std::unique_ptr<LanguageModel> model);

  /// Allocates everything. The model's parameters have no memory before.
  virtual void prepare() = 0;
  virtual void step(int step) = 0;

  // The calls around each unit. A rung overrides those that it needs.
  virtual void before_use(Unit&) {}  // in forward and in backward
  virtual void after_use(Unit&) {}
  virtual void before_gradients(Unit&) {}
  virtual void after_gradients(Unit&) {}

  /// The loss of a part of a step's batch: its share of the mean over the batch. Writes it down.
  Variable loss(int step, int part);
  /// The units of loss() that a rank of a pipeline computes, behind `x`; the last stage has the loss.
  Variable loss_of_stage(int step, int part, const Stage& stage, const Variable& x);
  /// Writes down the losses of all parts of a step's batch, f32 [parts].
  void write_losses(int step, const Tensor& losses);
  const Units& units() const { return model_->units(); }
  std::size_t index_of(const Unit& unit) const;
  /// The unit that is used next in this pass; null after the last.
  const Unit* next(const Unit& unit) const;
  /// Work queued on the communication stream from here on starts after all that has been computed.
  const Stream& after_computation() const;
  /// Computation goes on after the event.
  void wait_for_communication(const Event& event) const;

  Communicator& world_;
  const int rank_, ranks_;
  /// Parts of a batch.
  const int parts_;
  const Stream& stream_ = communication_stream();

 private:
  void before_forward(Unit& unit) final;
  void after_forward(Unit& unit) final { after_use(unit); }
  void before_backward(Unit& unit) final;
  void after_backward(Unit& unit) final;

  const std::unique_ptr<LanguageModel> model_;
  Losses& losses_;
  Watch watch_;
  WatchWait watch_wait_;
  int step_ = 0;
  bool in_backward_ = false;
  std::int64_t bytes_ = 0, state_bytes_ = 0;
};

/// The elements of a unit's parameters, which lie one after another in the unit's buffers.
std::int64_t elements_of(const Unit& unit);
/// Elements of the longest buffer of all units.
std::int64_t most_elements(const Units& units);
/// f32 zeros, charged to this category.
Tensor zeros(std::int64_t elements, Category category);
/// The window of each parameter in a unit's buffer, flat.
std::vector<Tensor> windows_of(const Unit& unit, const Tensor& buffer);
/// Writes the initial values of the unit's parameters.
void initialize(const Unit& unit, const Tensor& buffer);
/// Opens the parameters' values as windows into a buffer.
void open_values(const Unit& unit, const Tensor& buffer);
/// The same for gradients. The next backward pass overwrites them.
void open_gradients(const Unit& unit, const Tensor& buffer);
void close_values(const Unit& unit);
/// The next backward pass overwrites the gradients.
void reset_gradients(const Unit& unit);

/// The totals that a rung prints.
struct Outcome {
  Losses losses;
  /// A number made of all bits of all losses.
  std::uint64_t hash() const;
  /// The mean loss of a step.
  float loss(int step) const;
  /// Bytes that all ranks sent in a step.
  std::int64_t bytes_per_step = 0;
  /// The largest number of bytes that one rank held at a time.
  std::int64_t peak_bytes = 0;
  /// The largest Rung::state_bytes of a rank.
  std::int64_t state_bytes = 0;
};

using MakeRung =
    std::function<std::unique_ptr<Rung>(Communicator& world, int parts, Losses& losses)>;
/// Makes a T.
template <typename T>
MakeRung make_rung() {
  return [](Communicator& world, int parts, Losses& losses) -> std::unique_ptr<Rung> {
    return std::make_unique<T>(world, parts, losses);
  };
}

/// Trains on so many ranks, which are threads. Raises Error if a rank fails, or waits for another
/// one until the deadline.
Outcome run(int ranks, int parts, const MakeRung& make,
            Deadline deadline = WorldOptions{}.deadline);

/// How many ranks a rung has: all of N, or one that computes all N parts.
enum class Ranks { all, one };
/// main() of a rung (climb.cpp). The command line has N, 2 or 4; without it both are run. Prints the
/// outcome; with --state after N the state's bytes in place of the peak, and nine digits of the losses.
/// A grader has another climb().
int climb(int argument_count, char** arguments, Ranks ranks, const MakeRung& make);
template <typename T>
int climb(int argument_count, char** arguments, Ranks ranks = Ranks::all) {
  return climb(argument_count, arguments, ranks, make_rung<T>());
}

}  // namespace tessera::ladder
