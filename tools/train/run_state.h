// The state of a run: all that a checkpoint holds.
//
// Tensors: the parameters' masters (with adapters theirs alone) under their names, and the optimizer's state under
// "<parameter>.m" and so on. The rest are a few numbers, in the manifest's "state". Learning rate,
// batches and random numbers are functions of the step, the data position and the configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sharding/checkpoint/reader.h"
#include "sharding/checkpoint/writer.h"
#include "tools/train/session.h"

namespace tessera {

/// The position of a run between two steps.
struct RunPosition {
  /// Steps done.
  std::int64_t step = 0;
  /// Batches taken from the data. More than steps after a rollback, which leaves batches out.
  std::int64_t batches = 0;
};

/// A tensor's part that this rank saves.
struct TensorToSave {
  PartToWrite part;
  /// Its elements: a window into this rank's memory.
  Tensor values;
};

std::vector<TensorToSave> tensors_to_save(TrainingSession& session);

/// The JSON object of the manifest. `sequences`: those of the training data, to recognize it. `base`: the
/// fingerprint of the model below adapters (models/hugging_face.h), or empty.
std::string run_state_text(TrainingSession& session, const RunPosition& position,
                           const StepResult& last, std::int64_t sequences, const std::string& base);
/// The same of a model and optimizer that another program has trained: the data are at their beginning.
std::string new_state_text(std::int64_t updates, std::int64_t sequences, LanguageModel& model);
/// That fingerprint in a checkpoint; empty if it has none.
std::string base_fingerprint(const CheckpointManifest& manifest);

/// Fills the shards of the model with a checkpoint's weights; if it has adapters, theirs alone. Call it in
/// Strategy::write_masters(). Raises Error if a tensor is missing, damaged or of another shape.
void read_parameters(CheckpointReader& reader, const LanguageModel& model,
                     const std::vector<Shard>& shards);
/// The same with the averages of train.ema in place of trained weights. Raises Error if there are none.
void read_averages(CheckpointReader& reader, const LanguageModel& model,
                   const std::vector<Shard>& shards);
/// Sets the routers' biases and the counts of their last step to those of a checkpoint.
void restore_routers(const CheckpointManifest& manifest, Routers& routers);

/// Sets the session to the state of a checkpoint, of any ranks and strategy. Each
/// rank reads its own slices. A collective. Returns the position, or, on a rank that could not read
/// all, a problem; the session may then only be restored again.
struct Restored {
  RunPosition position;
  std::int64_t sequences = 0;
  std::string problem;
};
Restored restore(TrainingSession& session, const std::filesystem::path& checkpoint);

}  // namespace tessera
