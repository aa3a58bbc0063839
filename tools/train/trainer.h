// A training run: data in, steps, evaluation, metrics, model out.
#pragma once

#include <string>

#include "tools/config/config.h"

namespace tessera {

/// Trains on config.runtime.ranks ranks that are threads, or as one of mpirun's ranks.
///
/// In config.train.dir rank 0 writes config.yaml (the resolved configuration) and metrics.jsonl as
/// it goes and, at the end, model/ (config.json, model.safetensors, tokenizer.json). Raises Error on
/// bad input before anything is written, and if a step's loss is not finite. It needs no current
/// context. `restarted`: a launcher's reason to start the run again, for its log and metrics.
void train(const Config& config, const std::string& restarted = {});

}  // namespace tessera
