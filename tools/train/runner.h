// One rank's run: steps, evaluations, reports, checkpoints, and the model at the end.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "sharding/checkpoint/folder.h"
#include "tools/train/checkpointer.h"
#include "tools/train/meter.h"
#include "tools/train/rates.h"
#include "tools/train/reporter.h"
#include "tools/train/run_data.h"
#include "tools/train/run_folder.h"
#include "tools/train/session.h"
#include "tools/train/step_profile.h"
#include "tools/watch/spikes.h"

namespace tessera {

/// Every rank of `world` makes one and calls execute().
class Runner {
 public:
  /// Raises Error if the model or the folder of the run cannot be used. Nothing is written before
  /// the model is known to be good. `data` must outlive the runner. `restarted`: a launcher's reason
  /// to start the run again; empty: it did not.
  Runner(const ResolvedConfig& run, const RunData& data, Communicator& world,
         std::string restarted = {});

  /// Trains to the last step, or until a signal. A collective.
  void execute();

 private:
  bool is_first() const { return world_.rank() == 0; }
  /// Rank 0's line: printed, or kept for the introduction.
  void log(std::string_view line);
  /// Takes the folder, loads a checkpoint if there is one to continue from, and opens the outputs.
  void start_output();
  /// Loads the last of these checkpoints that every rank can read; rank 0 passes them. Returns its
  /// path, or an empty one if there are none.
  std::filesystem::path restore_newest(std::vector<CheckpointFolder> candidates);
  /// With kernels.cublaslt=measured: products take the algorithms that this checkpoint keeps.
  void restore_algorithms(const std::filesystem::path& checkpoint);
  std::vector<std::string> introduction() const;
  /// Rank 0's event of this moment.
  void event(std::string_view name, nlohmann::ordered_json fields);
  /// The configuration with the ranks, threads and device of this run.
  Config as_run() const;
  /// Every so many steps, and after the first and the last; never if `every` is 0.
  bool is_due(std::int64_t step, std::int64_t every) const;

  void train_step();
  /// Keeps the step with its batch if its loss is a spike.
  void keep_spike(const StepResult& result);
  /// A loss or norm is not finite: skips the step or goes back to a checkpoint. Raises Error if this
  /// was done too often.
  void answer_divergence(const StepResult& result);
  void roll_back(const std::string& problem);
  void save_checkpoint(const StepResult& result);
  /// Writes the profile if it is complete or the run has ended.
  void write_profile(bool run_has_ended);
  /// A line, if one is due, with all measurements of the model that are due.
  void report(std::int64_t step, const StepResult& result);
  /// Fills in the losses of the validation tokens, source by source; with `ema` the loss of the averages of
  /// train.ema. Rank 0 reports them.
  void measure_validation(StepMetrics& metrics, bool ema);
  /// The rows of a source in one measurement.
  std::int64_t rows_to_measure(const TokenLoader& loader) const;
  /// The number of right answers to data.hellaswag.
  std::int64_t right_answers_of_all();
  void write_samples(std::int64_t step);
  /// A signal has ended the run before its last step.
  void report_stop();
  void save();

  ResolvedConfig run_;
  const Config& config_ = run_.config;
  Communicator& world_;
  const RunData& data_;
  const std::string restarted_;
  StagedLoader batches_;
  TrainingSession session_;
  Rates rates_;
  StepProfile profile_;
  IntervalMeter meter_;
  Checkpointer checkpointer_;
  SpikeDetector spikes_;
  RunPosition position_;
  /// The checkpoint that the run continues from; empty: it begins.
  std::filesystem::path resumed_;
  /// The run was complete before, and its model is there.
  bool nothing_to_do_ = false;
  bool stopped_ = false;
  /// Steps skipped in a row, and rollbacks to the checkpoint of one step.
  int skips_ = 0;
  int rollbacks_ = 0;
  /// The log has said that steps wait for data.
  bool warned_of_data_ = false;
  std::int64_t rollback_step_ = -1;

  // Rank 0 alone has these:
  std::optional<MetricsServer> server_;
  std::optional<RunFolder> folder_;
  std::optional<Reporter> reporter_;
  /// Lines from before the reporter was there.
  std::vector<std::string> notes_;
  std::map<std::string, std::string> tokenizer_files_;
  /// The fingerprint of the model below adapters; empty without adapters.
  std::string base_;
};

}  // namespace tessera
