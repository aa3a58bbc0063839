#include "examples/ladder/ladder.h"

#include <algorithm>
#include <mutex>

#include "models/qwen3_moe/model.h"
#include "runtime/check.h"
#include "runtime/hash.h"
#include "sharding/comm/threads/threads.h"

namespace tessera::ladder {
namespace {

Qwen3MoeConfig config() {
  return {.vocab_size = kVocabulary,
          .context = kTokens,
          .layers = 4,
          .heads = 2,
          .kv_heads = 2,
          .head_size = 32,
          .width = kWidth,
          .experts = 4,
          .experts_per_token = 2,
          .expert_width = 32};
}

/// The mean of a step's parts, added in the order of the tree over ranks.
float sum_of(const std::vector<float>& parts, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return parts[begin];
  const std::size_t middle = begin + (end - begin) / 2;
  return sum_of(parts, begin, middle) + sum_of(parts, middle, end);
}

}  // namespace

std::vector<std::int32_t> row(int step, int part) {
  const RandomStream random(kSeed, "rows", static_cast<std::uint64_t>(step),
                            static_cast<std::uint64_t>(part));
  std::vector<std::int32_t> tokens = {static_cast<std::int32_t>(random.below(0, kVocabulary))};
  while (tokens.size() <= kTokens) tokens.push_back((tokens.back() * 5 + 3) % kVocabulary);
  return tokens;
}

Rung::Rung(Communicator& world, int parts, Losses& losses)
    : Rung(world, parts, losses, std::make_unique<Qwen3Moe>(config())) {
  for (const auto& unit : units()) unit->attach(this);
}

Rung::Rung(Communicator& world, int parts, Losses& losses, std::unique_ptr<LanguageModel> model)
    : world_(world),
      rank_(world.rank()),
      ranks_(world.size()),
      parts_(parts),
      model_(std::move(model)),
      losses_(losses) {}

void Rung::train() {
  prepare();
  state_bytes_ = context().allocator().account().total.current;
  for (step_ = 0; step_ < kSteps; ++step_) {
    step(step_);
    if (watch_wait_) watch_wait_(nullptr);
    stream_.synchronize();
    if (step_ == 0) bytes_ = -world_.bytes_sent();
  }
  bytes_ += world_.bytes_sent();
}

Variable Rung::loss(int step, int part) {
  return loss_of_stage(step, part, {0, static_cast<std::int64_t>(units().size())}, Variable());
}

Variable Rung::loss_of_stage(int step, int part, const Stage& stage, const Variable& x) {
  const std::vector<std::int32_t> tokens = row(step, part);
  const auto ids = [&](std::size_t first) {
    return Tensor::from(std::span(tokens).subspan(first, kTokens), {1, kTokens});
  };
  const double share = 1.0 / static_cast<double>(kTokens * parts_);
  Variable y = model_->loss_of_stage(stage, x, ids(0), ids(1), share, /*training=*/true);
  if (stage.last == static_cast<std::int64_t>(units().size())) {
    losses_[static_cast<std::size_t>(step)][static_cast<std::size_t>(part)] =
        y.data().item<float>();
  }
  return y;
}

void Rung::write_losses(int step, const Tensor& losses) {
  // All ranks have them, and the ranks share the place.
  if (rank_ == 0) losses_[static_cast<std::size_t>(step)] = losses.to_vector<float>();
}

std::size_t Rung::index_of(const Unit& unit) const {
  std::size_t index = 0;
  while (units()[index].get() != &unit) ++index;
  return index;
}

const Unit* Rung::next(const Unit& unit) const {
  const std::size_t index = index_of(unit);
  if (in_backward_) return index == 0 ? nullptr : units()[index - 1].get();
  return index + 1 == units().size() ? nullptr : units()[index + 1].get();
}

// The head computes its gradients in forward.
void Rung::before_forward(Unit& unit) {
  in_backward_ = false;
  before_use(unit);
  if (next(unit) == nullptr) before_gradients(unit);
  if (watch_) watch_(step_, in_backward_, unit);
}

void Rung::before_backward(Unit& unit) {
  in_backward_ = true;
  before_use(unit);
  if (index_of(unit) + 1 < units().size()) before_gradients(unit);
  if (watch_) watch_(step_, in_backward_, unit);
}

void Rung::after_backward(Unit& unit) {
  after_use(unit);
  after_gradients(unit);
}

const Stream& Rung::after_computation() const {
  stream_.wait(context().compute_stream().record());
  return stream_;
}

void Rung::wait_for_communication(const Event& event) const {
  if (watch_wait_) watch_wait_(&event);
  tessera::wait_for_communication(event);
}

std::int64_t elements_of(const Unit& unit) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : unit.parameters()) elements += parameter.numel();
  return elements;
}

std::int64_t most_elements(const Units& units) {
  std::int64_t most = 0;
  for (const auto& unit : units) most = std::max(most, elements_of(*unit));
  return most;
}

Tensor zeros(std::int64_t elements, Category category) {
  const CategoryScope scope(category);
  return Tensor::zeros({elements}, DType::f32);
}

std::vector<Tensor> windows_of(const Unit& unit, const Tensor& buffer) {
  std::vector<Tensor> windows;
  std::int64_t begin = 0;
  for (const Parameter& parameter : unit.parameters()) {
    windows.push_back(buffer.slice(begin, begin + parameter.numel()));
    begin += parameter.numel();
  }
  return windows;
}

void initialize(const Unit& unit, const Tensor& buffer) {
  const std::vector<Tensor> windows = windows_of(unit, buffer);
  for (std::size_t p = 0; p < windows.size(); ++p) {
    unit.parameters()[p].initialize(windows[p], 0, kSeed);
  }
}

void open_values(const Unit& unit, const Tensor& buffer) {
  const std::vector<Tensor> windows = windows_of(unit, buffer);
  for (std::size_t p = 0; p < windows.size(); ++p) {
    const Parameter& parameter = unit.parameters()[p];
    parameter.open(windows[p].reshape(parameter.shape()));
  }
}

void open_gradients(const Unit& unit, const Tensor& buffer) {
  const std::vector<Tensor> windows = windows_of(unit, buffer);
  for (std::size_t p = 0; p < windows.size(); ++p) {
    const Parameter& parameter = unit.parameters()[p];
    parameter.open_gradient(windows[p].reshape(parameter.shape()));
    parameter.reset_gradient();
  }
}

void close_values(const Unit& unit) {
  for (const Parameter& parameter : unit.parameters()) parameter.close();
}

void reset_gradients(const Unit& unit) {
  for (const Parameter& parameter : unit.parameters()) parameter.reset_gradient();
}

std::uint64_t Outcome::hash() const {
  Fnv1a hash;
  for (const std::vector<float>& parts : losses) hash.add(std::as_bytes(std::span(parts)));
  return hash.value();
}

float Outcome::loss(int step) const {
  const std::vector<float>& parts = losses[static_cast<std::size_t>(step)];
  return sum_of(parts, 0, parts.size());
}

Outcome run(int ranks, int parts, const MakeRung& make, Deadline deadline) {
  Outcome outcome;
  outcome.losses.assign(kSteps, std::vector<float>(static_cast<std::size_t>(parts)));
  std::mutex mutex;
  run_ranks({.ranks = ranks, .threads = 1, .deadline = deadline}, [&](Communicator& world) {
    const std::unique_ptr<Rung> rung = make(world, parts, outcome.losses);
    rung->train();
    const std::int64_t peak = context().allocator().account().total.peak;
    const std::lock_guard lock(mutex);
    outcome.bytes_per_step += rung->bytes_per_step();
    outcome.peak_bytes = std::max(outcome.peak_bytes, peak);
    outcome.state_bytes = std::max(outcome.state_bytes, rung->state_bytes());
  });
  return outcome;
}

}  // namespace tessera::ladder
