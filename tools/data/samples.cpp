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

std::vector<ChatMessage> messages_of(const JsonEntries& sample, const char* key) {
  std::vector<ChatMessage> messages;
  for (const JsonEntries& message : sample.objects(key)) {
    messages.push_back({message.text("role"), message.text("content")});
  }
  return messages;
}

SampleText completed(const std::string& prompt, const std::string& completion) {
  return {.text = prompt + completion,
          .answers = {{prompt.size(), prompt.size() + completion.size()}},
          .ends_text = !completion.empty()};
}

/// The number of messages that two conversations begin with alike.
std::size_t shared_messages(const std::vector<ChatMessage>& a, const std::vector<ChatMessage>& b) {
  const auto equal = [](const ChatMessage& x, const ChatMessage& y) {
    return x.role == y.role && x.content == y.content;
  };
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end(), equal).first - a.begin());
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
  if (document.contains("chosen") && document.contains("rejected")) return true;
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
      const bool pair = sample.rejected.has_value();
      check(pairs_.value_or(pair) == pair,
            "pairs of answers and other samples cannot be mixed; prepare them in two folders");
      pairs_ = pair;
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
  if (line.contains("chosen") || line.contains("rejected")) return pair_of(line);
  if (line.contains("messages")) return {.chosen = chat_of(messages_of(entries, "messages"))};
  check(
      line.contains("prompt") || line.contains("completion"),
      "a sample for fine-tuning has messages, prompt and completion, or chosen and rejected; this "
      "one has none of them");
  return {.chosen = completed(entries.text("prompt"), entries.text("completion"))};
}

Sample SampleReader::pair_of(const json& line) {
  const JsonEntries entries(line);
  if (line.contains("chosen") && line["chosen"].is_string()) {
    const std::string prompt = entries.text("prompt");
    return {.chosen = completed(prompt, entries.text("chosen")),
            .rejected = completed(prompt, entries.text("rejected"))};
  }
  std::vector<ChatMessage> prompt;
  if (line.contains("prompt")) prompt = messages_of(entries, "prompt");
  const auto continued = [&](const char* key) {
    std::vector<ChatMessage> messages = prompt;
    for (ChatMessage& message : messages_of(entries, key)) messages.push_back(std::move(message));
    return messages;
  };
  const auto chosen = continued("chosen"), rejected = continued("rejected");
  const std::size_t shared = prompt.empty() ? shared_messages(chosen, rejected) : prompt.size();
  return {.chosen = chat_of(chosen, shared), .rejected = chat_of(rejected, shared)};
}

SampleText SampleReader::chat_of(const std::vector<ChatMessage>& messages, std::size_t shared) {
  if (!template_) {
    check(fs::is_directory(tokenizer_),
          "messages need a tokenizer with a chat template, and '{}' has none", tokenizer_);
    template_ = ChatTemplate::of(tokenizer_);
  }
  RenderedChat chat = template_->render_whole(messages);
  const auto before =
      std::count_if(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(shared),
                    [](const ChatMessage& message) { return message.role == "assistant"; });
  chat.answers.erase(chat.answers.begin(), chat.answers.begin() + before);
  return {.text = std::move(chat.text), .answers = std::move(chat.answers)};
}

std::string whole_text(const Sample& sample) {
  return sample.chosen.text + (sample.rejected ? sample.rejected->text : "");
}

namespace {

/// The tokens of one text with marks, but for that of its beginning.
std::vector<std::int32_t> encode_text(const SampleText& sample, const Tokenizer& tokenizer,
                                      std::optional<std::int32_t> end_of_text,
                                      const std::string& place) {
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
        place);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(with_marks(tokens[i], marks[i]));
  }
  return tokens;
}

}  // namespace

std::vector<std::int32_t> encode_sample(const Sample& sample, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text) {
  std::vector<std::int32_t> tokens =
      encode_text(sample.chosen, tokenizer, end_of_text, sample.place);
  const auto add_mark = [](std::int32_t& token, TokenMarks marks) {
    token = static_cast<std::int32_t>(static_cast<TokenId>(token) | with_marks(0, marks));
  };
  // A text of a pair belongs to no token before it, so its first token is not predicted.
  const auto begin_answer = [&](std::int32_t& token, TokenMarks marks) {
    token = static_cast<std::int32_t>(without_marks(static_cast<TokenId>(token)));
    add_mark(token, marks);
  };
  if (!sample.rejected) {
    add_mark(tokens.front(), kBegins);
    return tokens;
  }
  begin_answer(tokens.front(), kBegins);
  std::vector<std::int32_t> other =
      encode_text(*sample.rejected, tokenizer, end_of_text, sample.place);
  begin_answer(other.front(), kBegins | kRejected);
  tokens.insert(tokens.end(), other.begin(), other.end());
  return tokens;
}

}  // namespace tessera
