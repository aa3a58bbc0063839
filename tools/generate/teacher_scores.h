// Writes teacher files (tools/data/teacher_file.h): a model's likeliest next tokens of every token.
//
// A token's log-probabilities are those of the softmax over the whole vocabulary. Documents do not see each
// other. One that is longer than the model's context is computed in windows that overlap by half
// (tools/data/document_windows.h).
//
// Memory does not grow with the files: tokens and logits are those of one piece at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tools/data/teacher_file.h"
#include "tools/generate/inference.h"

namespace tessera {

struct TeacherOptions : InferenceOptions {
  /// Token files, as data.train names them.
  std::filesystem::path data;
  /// Places of each token, 1 to kMostPlaces.
  std::int64_t top_k = 0;
  /// The most tokens of a window. 0: the model's context.
  std::int64_t sequence_length = 0;
  /// As the key data.document_token, for files without marks. Empty: that of the run that made the model.
  std::string document_token = {};
};

/// A teacher file that was written.
struct TeacherScores {
  std::filesystem::path path;
  TeacherHeader header;
  /// The model's mean cross-entropy on the next tokens of all documents.
  double loss = 0.0;
};

/// Writes the teacher file of each token file, in the order of the files. Each is replaced once it is
/// complete; then `done` is called. Raises Error if a file cannot be read or written, has a token outside the
/// model's vocabulary, or has no document of two tokens.
void write_teacher_files(const TeacherOptions& options,
                         const std::function<void(const TeacherScores& scores)>& done);

/// One line.
std::string to_text(const TeacherScores& scores);

}  // namespace tessera
