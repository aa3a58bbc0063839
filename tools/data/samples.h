// Samples for fine-tuning: texts of which a model has written parts.
//
// A line of a .jsonl file, or a row of a table, is a sample, of one of two forms:
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//   {"prompt": "...", "completion": "..."}
// Messages are spelled by the chat template of the tokenizer's folder. The answers are the assistant's
// messages, each with the token that ends its turn. A completion ends with the end-of-text token.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/chat_template.h"
#include "models/tokenizers/tokenizer.h"
#include "tools/data/input_stream.h"

namespace tessera {

/// The keys of samples: the columns that are read of a table.
inline const std::vector<std::string> kSampleKeys = {"messages", "prompt", "completion"};

struct Sample {
  std::string text;
  /// The bytes of the text that are trained.
  std::vector<RenderedChat::Span> answers;
  /// Whether the end-of-text token follows, as a part of the answer.
  bool ends_text = false;
  /// "data.jsonl:12", for messages.
  std::string place;
};

/// Whether a document has the form of a sample.
bool looks_like_sample(const nlohmann::json& document);

class SampleReader {
 public:
  /// `tokenizer`: a folder, or another text for a tokenizer without a chat template.
  explicit SampleReader(std::string tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// Hands over the samples of an input of the kind .jsonl in order. Raises Error that begins with the file and the
  /// line if a line is no sample, or the template does not accept its messages.
  void read(InputStream& file, const std::function<void(Sample)>& take);

 private:
  Sample sample_of(const nlohmann::json& line);

  std::string tokenizer_;
  std::optional<ChatTemplate> template_;
};

/// The tokens of a sample, each with the marks of mark_file.h in its upper bits; see with_marks(). A
/// token that lies on both sides of an answer's beginning is trained. Raises Error with the sample's
/// place if no token is trained that another one comes before.
std::vector<std::int32_t> encode_sample(const Sample& sample, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text);

}  // namespace tessera
