// Evaluation of a trained model: loss and bits per byte of each source, and tasks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/config/config.h"
#include "tools/eval/run_task.h"
#include "tools/generate/inference.h"

namespace tessera {

struct EvaluateOptions : InferenceOptions {
  /// Token files as data.val names them, each with a name. Empty: those of the run that made the model, if
  /// `model` is a run folder or its folder model/.
  std::vector<ValidationSource> data;
  /// 0: that of the run, or the model's context.
  std::int64_t sequence_length = 0;
  /// As the keys data.rows and data.document_token. No value and empty: those of the run.
  std::optional<RowKind> rows = {};
  std::string document_token = {};
  /// A file of multiple-choice questions (tools/eval/hellaswag.h), or empty.
  std::filesystem::path hellaswag;
  /// They need the model's tokenizer.
  std::vector<TaskOptions> tasks;
  /// A file for the samples of the tasks, or empty.
  std::filesystem::path samples;
};

/// The loss on some token files.
struct SourceLoss {
  std::string name;  // of an entry of data.validation, or the setting
  /// The sum of the cross-entropies of all valid targets, and their number.
  double loss = 0.0;
  std::int64_t tokens = 0;
  /// Windows, or rows of documents.
  std::int64_t sequences = 0;
  /// The bytes of text that the targets spell. No value without a tokenizer next to the data or the model, if
  /// the data trains on answers only, or with rows of whole documents.
  std::optional<std::int64_t> bytes = 0;

  double mean() const { return loss / static_cast<double>(tokens); }
  /// The loss in bits, per byte of text instead of per token: comparable between tokenizers.
  std::optional<double> bits_per_byte() const;
};

struct Evaluation {
  std::vector<SourceLoss> sources;
  std::int64_t sequence_length = 0;
  /// Questions in all, and answered right.
  std::int64_t questions = 0;
  std::int64_t right = 0;
  std::vector<TaskResult> tasks;

  /// The sum of the sources.
  SourceLoss all_sources() const;
};

/// Writes `samples`. Raises Error if there is nothing to evaluate, or if a file cannot be read.
Evaluation evaluate(const EvaluateOptions& options);

/// A line per figure.
std::string to_text(const Evaluation& evaluation);
/// {"val_loss": 1.9, "perplexity": 6.7, "tokens": 2048, "sequences": 16, "bits_per_byte": 2.7, "hellaswag":
/// null, "questions": 0, "sources": [...], "tasks": [...]}.
std::string to_json(const Evaluation& evaluation);

}  // namespace tessera
