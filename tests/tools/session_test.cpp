// TrainingSession against a loop of this file's own: update rules, schedules, clipping and the mean
// over valid targets by formula, in float64. Gradients come from the model, whole batches at a time
// on one rank in f32 (the tests of models/ compare them with PyTorch).
#include "tools/train/session.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numbers>

#include "autograd/engine.h"
#include "runtime/random.h"
#include "sharding/comm/threads/threads.h"
#include "sharding/strategy/strategy.h"
#include "tests/tools/sessions.h"
#include "tools/config/sharding_options.h"
#include "tools/measure/workload.h"
#include "tools/train/description.h"

namespace tessera {
namespace {

using Values = std::map<std::string, std::vector<double>>;
using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kIgnored = -100;

/// Random tokens of which many targets are ignored: in even rows two of three, in odd rows every
/// seventh. So ranks and micro-batches have unequal numbers of valid targets.
Batch masked_tokens(const DataConfig& data, std::int64_t step, std::int64_t first_row,
                    std::int64_t rows) {
  const RandomStream random(7, "masked tokens", static_cast<std::uint64_t>(step));
  std::vector<std::int32_t> inputs, targets;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    for (std::int64_t t = 0; t < data.sequence_length; ++t) {
      const auto at = static_cast<std::uint64_t>(row * data.sequence_length + t);
      inputs.push_back(static_cast<std::int32_t>(random.below(2 * at, 257)));
      const bool ignored = row % 2 == 0 ? t % 3 != 0 : t % 7 == 0;
      targets.push_back(ignored ? kIgnored
                                : static_cast<std::int32_t>(random.below(2 * at + 1, 257)));
    }
  }
  const Shape shape = {rows, data.sequence_length};
  return {Tensor::from(inputs, shape), Tensor::from(targets, shape)};
}

/// Counts without help of the library.
double valid_targets_of(const Batch& batch) {
  double count = 0.0;
  for (const std::int32_t target : batch.targets.to_vector<std::int32_t>()) {
    count += target == kIgnored ? 0.0 : 1.0;
  }
  return count;
}

BatchSource masked_source(const DataConfig& data) {
  return [data](std::int64_t step, std::int64_t first, std::int64_t rows) {
    return masked_tokens(data, step, first, rows);
  };
}

struct ReferenceStep {
  double loss, norm, learning_rate;
};

/// One rank that trains by formula.
class Reference {
 public:
  explicit Reference(Config config) : config_(std::move(config)) {
    config_.sharding = {};
    config_.runtime.compute_dtype = DType::f32;
    model_ = make_model(resolve(config_));
    strategy_ =
        make_single_strategy(model_->units(), static_cast<std::uint64_t>(config_.train.seed));
    for (const Shard& shard : strategy_->shards()) {
      const auto values = shard.data.to_vector<float>();
      weights_[shard.parameter.name()].assign(values.begin(), values.end());
    }
    initial_ = weights_;
  }

  const Values& weights() const { return weights_; }
  const Values& initial() const { return initial_; }

  /// With `update` false the gradient is computed and nothing changes, as in a skipped step.
  ReferenceStep step(std::int64_t step, bool update = true) {
    const Batch batch = masked_tokens(config_.data, step, 0, config_.data.batch_size);
    Step sharded = strategy_->start_step();
    const Variable loss =
        model_->loss(batch.inputs, batch.targets, 1.0 / valid_targets_of(batch), true);
    const double mean = loss.data().item<float>();
    backward(loss);
    sharded.finish_micro_batch();
    sharded.discard();  // apply() updates by formula
    Values gradients;
    double squares = 0.0;
    for (const Shard& shard : strategy_->shards()) {
      const auto values = shard.gradient.to_vector<float>();
      gradients[shard.parameter.name()].assign(values.begin(), values.end());
      for (const double g : values) squares += g * g;
    }
    const double norm = std::sqrt(squares);
    if (update) apply(gradients, norm, step);
    return {mean, norm, learning_rate(config_.optimizer, step)};
  }

  /// The settings of a parameter; its weight_decay is the one that acts.
  std::function<OptimizerConfig(const Parameter&)> settings = [this](const Parameter& parameter) {
    OptimizerConfig o = config_.optimizer;
    if (parameter.shape().rank() < 2) o.weight_decay = 0.0;  // norms and biases do not decay
    return o;
  };

  void set_weights(const Values& weights) {
    weights_ = initial_ = weights;
    write_weights();
  }

 private:
  /// Steps are counted from 1. The warm-up ends at the peak, at step `warmup`.
  double learning_rate(const OptimizerConfig& o, std::int64_t step) const {
    const auto s = static_cast<double>(step);
    const auto warmup = static_cast<double>(o.warmup_steps);
    if (s <= warmup) return o.learning_rate * s / warmup;
    if (o.schedule == ScheduleKind::constant) return o.learning_rate;
    const double floor = o.learning_rate * o.minimum_learning_rate_ratio;
    const auto last = static_cast<double>(config_.train.steps);
    const double done = (s - 1.0 - warmup) / (last - 1.0 - warmup);
    const double height = o.schedule == ScheduleKind::linear
                              ? 1.0 - done
                              : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    return floor + (o.learning_rate - floor) * height;
  }

  void apply(const Values& gradients, double norm, std::int64_t step) {
    const double most = config_.optimizer.clip_norm;
    const double clip = most > 0.0 && norm > most ? most / norm : 1.0;
    ++updates_;
    for (const Shard& shard : strategy_->shards()) {
      const std::string& name = shard.parameter.name();
      const OptimizerConfig o = settings(shard.parameter);
      const double decay = o.weight_decay;
      const double rate = learning_rate(o, step);
      std::vector<double>& w = weights_[name];
      std::vector<double>& m = first_[name];
      std::vector<double>& v = second_[name];
      m.resize(w.size());
      v.resize(w.size());
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = clip * gradients.at(name)[i];
        if (o.name == OptimizerKind::sgd) {  // PyTorch's rule
          const double with_decay = g + decay * w[i];
          m[i] = o.momentum * m[i] + with_decay;  // the first velocity is the gradient
          w[i] -= rate * (o.nesterov ? with_decay + o.momentum * m[i] : m[i]);
          continue;
        }
        m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g;
        v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g * g;
        const double m_hat = m[i] / (1.0 - std::pow(o.beta1, updates_));
        const double v_hat = v[i] / (1.0 - std::pow(o.beta2, updates_));
        w[i] -= rate * (m_hat / (std::sqrt(v_hat) + o.epsilon) + decay * w[i]);
      }
    }
    write_weights();
  }

  void write_weights() {
    strategy_->write_masters([&] {
      for (const Shard& shard : strategy_->shards()) {
        const std::vector<double>& w = weights_[shard.parameter.name()];
        const std::vector<float> rounded(w.begin(), w.end());
        shard.data.copy_from(Tensor::from(rounded, shard.data.shape()));
      }
    });
  }

  Config config_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Strategy> strategy_;
  Values weights_, initial_, first_, second_;
  double updates_ = 0.0;
};

struct Trained {
  std::vector<StepResult> steps;
  Values weights;
};

/// The session's steps and final weights. `prepare` may change the session first.
Trained train_session(const Config& config, int ranks,
                      const std::function<void(TrainingSession&)>& prepare = {}) {
  Trained trained;
  test::with_session(config, ranks, [&](auto& session, const auto&, auto& world) {
    if (prepare) prepare(session);
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      const StepResult result = session.step(step, masked_source(config.data));
      if (world.rank() == 0) trained.steps.push_back(result);
    }
    for (const auto& [name, values] : test::weights_of(session)) {
      if (world.rank() == 0) trained.weights[name].assign(values.begin(), values.end());
    }
  });
  return trained;
}

/// The sum of |found - expected| over that of |expected - initial|: an error relative to all that
/// training has changed.
double relative_error(const Values& found, const Values& expected, const Values& initial) {
  double error = 0.0;
  double change = 0.0;
  for (const auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      error += std::abs(found.at(name)[i] - values[i]);
      change += std::abs(values[i] - initial.at(name)[i]);
    }
  }
  return error / change;
}

Config small(const std::string& strategy, std::int64_t accumulation_steps) {
  Config config = workload("tiny", {});
  config.train.steps = 6;
  config.optimizer.epsilon = 1e-3;  // gradients that are only rounding must not move weights
  config.data.accumulation_steps = accumulation_steps;
  if (strategy != "single") config = variant_of(config, strategy);
  return config;
}

void check_against_reference(
    const Config& config, int ranks, double tolerance,
    const std::function<OptimizerConfig(const Parameter&)>& settings = {}) {
  const Trained found = train_session(config, ranks);
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator&) {
    Reference reference(config);
    if (settings) reference.settings = settings;
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      CAPTURE(step);
      const ReferenceStep expected = reference.step(step);
      const StepResult& result = found.steps[static_cast<std::size_t>(step - 1)];
      CHECK(result.learning_rate == Approx(expected.learning_rate).epsilon(1e-12));
      CHECK(result.loss == Approx(expected.loss).epsilon(tolerance));
      CHECK(result.gradient_norm == Approx(expected.norm).epsilon(10 * tolerance));
    }
    CHECK(relative_error(found.weights, reference.weights(), reference.initial()) <
          100 * tolerance);
  });
}

}  // namespace

TEST_CASE("session: adamw, cosine with warm-up, clipping, on one rank in two micro-batches") {
  Config config = small("single", 2);
  config.optimizer.warmup_steps = 2;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.clip_norm = 0.5;
  check_against_reference(config, 1, 1e-5);
}

TEST_CASE("session: adamw, linear, no clipping, by fsdp on two ranks in two micro-batches") {
  Config config = small("fsdp", 2);
  config.optimizer.schedule = ScheduleKind::linear;
  config.optimizer.warmup_steps = 1;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.clip_norm = 0.0;
  config.optimizer.weight_decay = 0.5;
  check_against_reference(config, 2, 1e-5);
}

TEST_CASE("session: sgd with Nesterov's momentum, constant, clipped, by zero2 on four ranks") {
  Config config = small("zero2", 1);
  config.optimizer.name = OptimizerKind::sgd;
  config.optimizer.schedule = ScheduleKind::constant;
  config.optimizer.warmup_steps = 3;
  config.optimizer.learning_rate = 0.5;
  config.optimizer.momentum = 0.9;
  config.optimizer.nesterov = true;
  config.optimizer.clip_norm = 0.2;
  config.sharding.activation_checkpointing = {.first = 0, .every = 1};
  check_against_reference(config, 4, 1e-5);
}

TEST_CASE("session: groups of adamw and sgd, by fsdp on two ranks and by flat zero1 on three") {
  Config config = small("single", 1);
  config.train.steps = 10;
  config.data.batch_size = 6;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.warmup_steps = 2;
  config.optimizer.clip_norm = 0.5;
  config.optimizer.groups = {{.match = "*.h.1.mlp.c_fc.*, *.ln_?.weight",
                              .keys = {{"name", "sgd"},
                                       {"learning_rate", "0.05"},
                                       {"schedule", "constant"},
                                       {"momentum", "0.9"},
                                       {"weight_decay", "0.2"}}},
                             {.match = "tables",
                              .keys = {{"learning_rate_factor", "0.5"},
                                       {"beta1", "0.8"},
                                       {"beta2", "0.9"},
                                       {"schedule", "linear"}}},
                             {.match = "*.h.0.*", .keys = {{"warmup_steps", "4"}}}};
  const auto settings = [&](const Parameter& parameter) {
    OptimizerConfig o = config.optimizer;
    const std::string& name = parameter.name();
    const bool vector = parameter.shape().rank() < 2;
    if (vector) o.weight_decay = 0.0;
    const bool norm = name.ends_with("ln_1.weight") || name.ends_with("ln_2.weight") ||
                      name.ends_with("ln_f.weight");
    if (norm || name.find("h.1.mlp.c_fc") != name.npos) {
      o.name = OptimizerKind::sgd;
      o.learning_rate = 0.05;
      o.schedule = ScheduleKind::constant;
      o.momentum = 0.9;
      o.weight_decay = 0.2;  // of norms and biases, too
    } else if (name == "transformer.wte.weight" || name == "transformer.wpe.weight") {
      o.learning_rate *= 0.5;
      o.beta1 = 0.8;
      o.beta2 = 0.9;
      o.schedule = ScheduleKind::linear;
    } else if (name.find(".h.0.") != name.npos) {
      o.warmup_steps = 4;
    }
    return o;
  };
  check_against_reference(variant_of(config, "fsdp"), 2, 1e-5, settings);
  check_against_reference(variant_of(config, "zero1"), 3, 1e-5, settings);
}

TEST_CASE("session: f16 clips the unscaled gradient") {
  Config config = small("ddp", 1);
  config.runtime.compute_dtype = DType::f16;
  config.optimizer.name = OptimizerKind::sgd;  // follows the gradient's length
  config.optimizer.weight_decay = 0.0;
  config.optimizer.schedule = ScheduleKind::constant;
  config.optimizer.learning_rate = 0.5;
  config.optimizer.clip_norm = 0.1;
  check_against_reference(config, 2, 1e-3);
}

TEST_CASE("session: steps that f16 skips leave weights and moments as they are") {
  Config config = small("fsdp", 1);
  config.runtime.compute_dtype = DType::f16;
  config.train.steps = 8;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.schedule = ScheduleKind::constant;
  config.optimizer.clip_norm = 0.0;
  // A final norm that is far too large: gradients above 1 overflow at the first loss scales.
  constexpr const char* kLarge = "transformer.ln_f.weight";
  const auto enlarge = [&](TrainingSession& session) {
    session.strategy().write_masters([&] {
      for (const Shard& shard : session.strategy().shards()) {
        if (shard.parameter.name() != kLarge || shard.data.numel() == 0) continue;
        shard.data.copy_from(Tensor::full(shard.data.shape(), DType::f32, 60.0));
      }
    });
  };
  const Trained found = train_session(config, 2, enlarge);
  int skipped = 0;
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator&) {
    Reference reference(config);
    Values weights = reference.weights();
    for (double& w : weights[kLarge]) w = 60.0;
    reference.set_weights(weights);
    for (std::int64_t step = 1; step <= config.train.steps; ++step) {
      const bool updates =
          std::isfinite(found.steps[static_cast<std::size_t>(step - 1)].gradient_norm);
      reference.step(step, updates);
      if (!updates) ++skipped;
    }
    // Adam's first updates depend on their number: one too many is a third less.
    CHECK(relative_error(found.weights, reference.weights(), reference.initial()) < 0.1);
  });
  CHECK(skipped >= 1);
  CHECK(skipped <= config.train.steps - 2);
}

TEST_CASE("the notes of a run name heads that miss a GPU's tensor cores") {
  const auto notes = [](std::int64_t head_size, DType dtype, const Device& device,
                        AttentionBackend backend = AttentionBackend::tessera) {
    Config config;
    config.model = {.preset = "llama3-mini", .head_size = head_size};
    config.runtime.compute_dtype = dtype;
    config.kernels.attention = backend;
    return speed_notes(resolve(config), device);
  };
  const Device gpu = parse_device("cuda:0").value();
  for (const std::int64_t head_size : {8, 32, 68, 132}) {
    CAPTURE(head_size);
    CHECK(notes(head_size, DType::bf16, gpu) ==
          std::vector{fmt::format("attention is slow for heads of {} channels: tensor cores take "
                                  "multiples of 8 from 40 to 256",
                                  head_size)});
    CHECK(notes(head_size, DType::f32, gpu).empty());
    CHECK(notes(head_size, DType::bf16, Device{}).empty());
    // cuDNN has multiples of 8.
    CHECK(notes(head_size, DType::bf16, gpu, AttentionBackend::cudnn).empty() ==
          (head_size % 8 == 0));
  }
  for (const std::int64_t head_size : {40, 64, 72, 80, 96, 112, 128, 136, 192, 256}) {
    CHECK(notes(head_size, DType::bf16, gpu).empty());
    CHECK(notes(head_size, DType::bf16, gpu, AttentionBackend::cudnn).empty());
  }
}

TEST_CASE("session: evaluation is the mean over valid targets, on any ranks, of any rows") {
  const Config config = small("fsdp", 1);
  const BatchSource source = masked_source(config.data);
  for (const std::int64_t rows : {1, 5, 8, 11}) {
    double sum = 0.0;
    double targets = 0.0;
    run_ranks({.ranks = 1, .threads = 1}, [&](Communicator&) {
      const auto model = make_model(resolve(config));
      const auto strategy =
          make_single_strategy(model->units(), static_cast<std::uint64_t>(config.train.seed));
      for (std::int64_t row = 0; row < rows; ++row) {
        const Batch batch = masked_tokens(config.data, 0, row, 1);
        sum += model->loss(batch.inputs, batch.targets, 1.0, false).data().item<float>();
        targets += valid_targets_of(batch);
      }
    });
    for (const int ranks : {1, 2, 4}) {
      CAPTURE(rows, ranks);
      std::vector<float> losses(static_cast<std::size_t>(ranks));
      test::with_session(config, ranks, [&](auto& session, const auto&, auto& world) {
        losses[static_cast<std::size_t>(world.rank())] = session.evaluate(rows, source);
      });
      CHECK(losses == std::vector<float>(losses.size(), losses[0]));
      CHECK(losses[0] == Approx(sum / targets).epsilon(1e-5));
    }
  }
}

TEST_CASE("session: documents that share a row have the losses of documents alone") {
  const Config config = small("fsdp", 1);
  const std::int64_t rows = config.data.batch_size, length = config.data.sequence_length;
  // Every token whose id is below 64 starts a document.
  const auto starts_of = [&](const Tensor& inputs) {
    Tokens starts = inputs.to_vector<std::int32_t>();
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const auto place = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
      starts[i] = place == 0 || starts[i] < 64 ? place : starts[i - 1];
    }
    return starts;
  };
  const BatchSource packed = [&](std::int64_t step, std::int64_t first, std::int64_t count) {
    Batch batch = masked_tokens(config.data, step, first, count);
    batch.document_starts = Tensor::from(starts_of(batch.inputs), batch.inputs.shape());
    return batch;
  };
  double expected = 0.0;
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator&) {
    const Batch batch = masked_tokens(config.data, 0, 0, rows);
    const Tokens starts = starts_of(batch.inputs);
    const auto model = make_model(resolve(config));
    const auto strategy =
        make_single_strategy(model->units(), static_cast<std::uint64_t>(config.train.seed));
    const NoGradient no_gradient;
    const std::int64_t all = rows * length;
    const auto place = [&](std::int64_t i) { return starts[static_cast<std::size_t>(i)]; };
    for (std::int64_t first = 0, end = 0; first < all; first = end) {
      for (end = first + 1; end < all && end % length != 0 && place(end) == place(first);) ++end;
      const auto document = [&](const Tensor& tokens) {
        return tokens.reshape({all}).slice(first, end).reshape({1, end - first});
      };
      expected += model->loss(document(batch.inputs), document(batch.targets), 1.0, false)
                      .data()
                      .item<float>();
    }
    expected /= valid_targets_of(batch);
  });
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    test::with_session(config, ranks, [&](auto& session, const auto&, const auto&) {
      CHECK(session.evaluate(rows, packed) == Approx(expected).epsilon(1e-6));
      CHECK(session.evaluate(rows, masked_source(config.data)) != Approx(expected).epsilon(1e-6));
      const BatchSource again = [&](std::int64_t, std::int64_t first, std::int64_t count) {
        return packed.load(0, first, count);
      };
      CHECK(session.step(1, again).loss == Approx(expected).epsilon(1e-6));
    });
  }
}

TEST_CASE("session: evaluation keeps no activations, so more layers take no more memory") {
  const auto peak_of = [](std::int64_t layers) {
    Config config = small("single", 1);
    config.model.layers = layers;
    std::int64_t peak = 0;
    test::with_session(config, 1, [&](auto& session, const auto&, const auto&) {
      context().allocator().reset_peaks();
      session.evaluate(8, masked_source(config.data));
      peak = context().allocator().account()[Category::activations].peak;
    });
    return peak;
  };
  CHECK(peak_of(2) > 0);
  CHECK(peak_of(6) == peak_of(2));
}

TEST_CASE("session: a batch without a valid target is an error that names the step") {
  const Config config = small("single", 1);
  test::with_session(config, 1, [&](auto& session, const auto&, const auto&) {
    const BatchSource nothing = [&](std::int64_t, std::int64_t, std::int64_t rows) {
      const Shape shape = {rows, config.data.sequence_length};
      const std::vector<std::int32_t> ignored(static_cast<std::size_t>(shape.numel()), kIgnored);
      return Batch{Tensor::zeros(shape, DType::i32), Tensor::from(ignored, shape)};
    };
    CHECK_THROWS_WITH(session.step(3, nothing), Catch::Contains("step 3: no target"));
    CHECK_THROWS_WITH(session.evaluate(4, nothing), Catch::Contains("no target"));
  });
}

}  // namespace tessera
