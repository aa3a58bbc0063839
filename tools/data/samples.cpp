#include "tools/data/samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "tools/data/json_entries.h"
#include "tools/data/json_lines.h"
#include "tools/data/marked_token.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<ChatMessage> messages_of(const JsonEntries& sample) {
  std::vector<ChatMessage> messages;
  for (const JsonEntries& message : sample.objects("messages")) {
    messages.push_back({message.text("role"), message.text("content")});
  }
  return messages;
}

/// The number of tokens that two texts begin with alike.
std::size_t common_beginning(const std::vector<std::int32_t>& a,
                             const std::vector<std::int32_t>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

bool looks_like_sample(const json& document) {
  if (!document.is_object()) return false;
  const auto messages = document.find("messages");
  if (messages == document.end()) {
    return document.contains("prompt") && document.contains("completion");
  }
  return messages->is_array() && !messages->empty() && messages->front().is_object() &&
         messages->front().contains("role") && messages->front().contains("content");
}

void SampleReader::read(InputStream& file, const std::function<void(Sample)>& take) {
  check(file.kind() == ".jsonl",
        "{}: samples for fine-tuning are lines of a .jsonl file, or rows of a table",
        file.path().string());
  const auto read = [&](const json& line, const std::string& place) {
    Sample sample;
    try {
      sample = sample_of(line);
    } catch (const Error& error) {
      fail("{}: {}", place, error.what());
    }
    sample.place = place;
    take(std::move(sample));
  };
  for_each_json_line(file, read, /*left_out=*/{});
}

Sample SampleReader::sample_of(const json& line) {
  const JsonEntries entries(line);
  if (!line.contains("messages")) {
    check(line.contains("prompt") || line.contains("completion"),
          "a sample for fine-tuning has messages, or prompt and completion; this one has neither");
    const std::string prompt = entries.text("prompt"), completion = entries.text("completion");
    return {.text = prompt + completion,
            .answers = {{prompt.size(), prompt.size() + completion.size()}},
            .ends_text = !completion.empty()};
  }
  const std::vector<ChatMessage> messages = messages_of(entries);
  if (!template_) {
    check(fs::is_directory(tokenizer_),
          "messages need a tokenizer with a chat template, and '{}' has none", tokenizer_);
    template_ = ChatTemplate::of(tokenizer_);
  }
  RenderedChat chat = template_->render_whole(messages);
  return {.text = std::move(chat.text), .answers = std::move(chat.answers)};
}

std::vector<std::int32_t> encode_sample(const Sample& sample, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text) {
  std::vector<std::int32_t> tokens = tokenizer.encode(sample.text);
  std::vector<TokenMarks> marks(tokens.size());
  const std::string_view text = sample.text;
  // The tokens of a text's beginning are those of the whole, up to the token that the cut lies in.
  const auto token_at = [&](std::size_t byte) {
    return common_beginning(tokenizer.encode(text.substr(0, byte)), tokens);
  };
  for (const auto& [begin, end] : sample.answers) {
    const std::size_t last = end == text.size() ? tokens.size() : token_at(end);
    for (std::size_t i = token_at(begin); i < last; ++i) marks[i] = kTrained;
  }
  if (sample.ends_text && end_of_text) {
    tokens.push_back(*end_of_text);
    marks.push_back(kTrained);
  }
  // The first token has none before it from which it could be predicted.
  check(std::find(marks.begin() + (marks.empty() ? 0 : 1), marks.end(), kTrained) != marks.end(),
        "{}: no token of this sample would be trained: it has no answer, or nothing before its "
        "answer",
        sample.place);
  marks.front() |= kBegins;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(with_marks(tokens[i], marks[i]));
  }
  return tokens;
}

}  // namespace tessera
