// One rank's run: steps, evaluations, reports, and the model at the end.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "tools/data/loader.h"
#include "tools/train/meter.h"
#include "tools/train/rates.h"
#include "tools/train/reporter.h"
#include "tools/train/run_folder.h"
#include "tools/train/session.h"
#include "tools/train/tracer.h"

namespace tessera {

/// The tokens of a run, opened and checked against the model. All ranks of a process share it.
struct RunData {
  /// Raises Error, with the place of the key, if a file cannot be used.
  explicit RunData(const ResolvedConfig& run);

  TokenLoader train;
  std::optional<TokenLoader> val;
  /// Saved with the model. Null if neither the data nor the model that training starts from has one.
  std::unique_ptr<Tokenizer> tokenizer;
};

/// Every rank of `world` makes one and calls execute().
class Runner {
 public:
  /// Raises Error if the model or the folder of the run cannot be used. Nothing is written before
  /// the model is known to be good. `data` must outlive the runner.
  Runner(const ResolvedConfig& run, const RunData& data, Communicator& world);

  /// Trains. A collective.
  void execute();

 private:
  /// Rank 0's part of the run.
  struct Output {
    explicit Output(const TrainConfig& config)
        : folder(config.dir), reporter(config, Reporter::Clock::now()) {}

    RunFolder folder;
    Reporter reporter;
  };

  bool is_first() const { return world_.rank() == 0; }
  void open_output();
  std::vector<std::string> introduction() const;
  /// The configuration with the ranks, threads and device of this run.
  Config as_run() const;
  /// Every so many steps, and after the first and the last; never if `every` is 0.
  bool is_due(std::int64_t step, std::int64_t every) const;

  void train_step(std::int64_t step);
  void report(std::int64_t step, const StepResult& result, bool evaluates);
  float validation_loss(std::int64_t step);
  void raise_if_stopped(std::int64_t step) const;
  void save();

  ResolvedConfig run_;
  const Config& config_ = run_.config;
  Communicator& world_;
  const RunData& data_;
  TrainingSession session_;
  Rates rates_;
  Tracer tracer_;
  IntervalMeter meter_;
  std::optional<Output> output_;
};

}  // namespace tessera
