// A whole training run: data in, steps, evaluation, metrics, model out.
#pragma once

#include "tools/config/config.h"

namespace tessera {

/// Trains as `config` says, on config.runtime.ranks ranks that are threads, or as one of mpirun's
/// ranks. In config.train.dir the first of them
/// writes config.yaml (the resolved configuration) and metrics.jsonl as it goes and, at the end,
/// model/ (config.json, model.safetensors, tokenizer.json). Raises Error on bad input before
/// anything is written, and if a step's loss is not finite. Needs no current context; makes its
/// own.
void train(const Config& config);

}  // namespace tessera
