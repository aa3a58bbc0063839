// Samples for fine-tuning: texts of which a model has written parts.
//
// A line of a .jsonl file, or a row of a table, is a sample, of one of four forms:
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//   {"prompt": "...", "completion": "..."}
//   {"prompt": "...", "chosen": "...", "rejected": "..."}
//   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
// Messages are spelled by the chat template of the tokenizer's folder. The answers are the assistant's
// messages, each with the token that ends its turn. A completion ends with the end-of-text token.
//
// The last two are pairs of answers, as TRL has them: two texts, the chosen one first. Lists of messages without a
// prompt share their first messages, up to the first that differs. These are the prompt then.
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
inline const std::vector<std::string> kSampleKeys = {"messages", "prompt", "completion", "chosen",
                                                     "rejected"};

struct SampleText {
  std::string text;
  /// The bytes of the text that are trained.
  std::vector<RenderedChat::Span> answers;
  /// Whether the end-of-text token follows, as a part of the answer.
  bool ends_text = false;
};

struct Sample {
  /// In a pair, the text with the chosen answer.
  SampleText chosen;
  /// A pair has it.
  std::optional<SampleText> rejected = {};
  /// "data.jsonl:12", for messages.
  std::string place = {};
};

/// Whether a document has the form of a sample.
bool looks_like_sample(const nlohmann::json& document);

class SampleReader {
 public:
  /// `tokenizer`: a folder, or another text for a tokenizer without a chat template.
  explicit SampleReader(std::string tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// Hands over the samples of an input of the kind .jsonl in order. Raises Error that begins with the file and the
  /// line if a line is no sample, or the template does not accept its messages, or if pairs and other samples are
  /// mixed.
  void read(InputStream& file, const std::function<void(Sample)>& take);

 private:
  Sample sample_of(const nlohmann::json& line);
  Sample pair_of(const nlohmann::json& line);
  /// The answers behind the first `shared` messages are trained.
  SampleText chat_of(const std::vector<ChatMessage>& messages, std::size_t shared = 0);

  std::string tokenizer_;
  std::optional<ChatTemplate> template_;
  /// Whether the samples so far were pairs.
  std::optional<bool> pairs_;
};

/// The text of a sample, or both of a pair.
std::string whole_text(const Sample& sample);

/// The tokens of a sample, each with the marks of mark_file.h in its upper bits; see with_marks(). A
/// token that lies on both sides of an answer's beginning is trained. Raises Error with the sample's
/// place if no token of a text is trained that another one comes before.
std::vector<std::int32_t> encode_sample(const Sample& sample, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text);

}  // namespace tessera
