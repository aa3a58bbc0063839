// Evaluation of a trained model: validation loss, bits per byte, multiple-choice questions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tools/data/row_kind.h"
#include "tools/generate/inference.h"

namespace tessera {

struct EvaluateOptions : InferenceOptions {
  /// Token files as data.val names them. Empty: those of the run that made the model, if `model` is a run
  /// folder or its folder model/.
  std::filesystem::path data;
  /// 0: that of the run, or the model's context.
  std::int64_t sequence_length = 0;
  /// As the keys data.rows and data.document_token. No value and empty: those of the run.
  std::optional<RowKind> rows = {};
  std::string document_token = {};
  /// A file of multiple-choice questions (tools/eval/hellaswag.h), or empty.
  std::filesystem::path hellaswag;
};

struct Evaluation {
  /// Mean cross-entropy of all targets in the data. No value without data.
  std::optional<double> val_loss = {};
  /// Valid targets.
  std::int64_t tokens = 0;
  /// Windows, or rows of documents.
  std::int64_t sequences = 0;
  std::int64_t sequence_length = 0;
  /// val_loss in bits, per byte of text instead of per token: comparable between tokenizers. No value without
  /// a tokenizer next to the data or the model, if the data trains on answers only, or with rows of
  /// whole documents.
  std::optional<double> bits_per_byte = {};
  /// Questions in all, and answered right.
  std::int64_t questions = 0;
  std::int64_t right = 0;
};

/// Raises Error if there is neither data nor a file of questions, or if one cannot be read.
Evaluation evaluate(const EvaluateOptions& options);

/// A line per figure.
std::string to_text(const Evaluation& evaluation);
/// {"val_loss": 1.9, "tokens": 2048, "sequences": 16, "bits_per_byte": 2.7, "hellaswag": null, "questions": 0}.
std::string to_json(const Evaluation& evaluation);

}  // namespace tessera
