// Conversations as text, the way chat models were trained on them.
//
// Hugging Face keeps a model's chat template as a program in Jinja, in tokenizer_config.json or
// chat_template.jinja. Tessera has no interpreter. It knows the templates of four families by the
// statements that write the messages, and renders them itself, equal to Transformers'
// apply_chat_template(..., add_generation_prompt=True):
//
//   llama2     <s>[INST] <<SYS>>\n...\n<</SYS>>\n\n... [/INST] ... </s><s>[INST] ... [/INST]
//   llama3     <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
//   llama3.1   the same with a date in the system's message; also 3.2 and 3.3
//   llama4     <|header_start|>user<|header_end|>\n\n...<|eot|>
//   qwen2.5    <|im_start|>user\n...<|im_end|>\n, with a system's message by default
//   qwen3      the same without one; an answer's thoughts are kept in the last turn only
//
// Tools, images and documents are not supported. A template with other statements is refused.
//
// Each rendering was compared with that of the published template: Llama 2's, 3's, 3.1's, 3.2's,
// 4's, Qwen2.5's and Qwen3's as they stand in huggingface.js (packages/ollama-utils and
// packages/jinja/test/e2e.test.js), and Llama 4's in Transformers (processing_llama4.py). No other
// of the hundred templates there is taken for one of these.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct ChatMessage {
  /// system, user or assistant.
  std::string role;
  std::string content;
};

/// A conversation's text, and where in it a model has written.
struct RenderedChat {
  struct Span {
    std::size_t begin, end;
  };
  std::string text;
  /// The bytes of each of the assistant's messages, with the token that ends its turn.
  std::vector<Span> answers = {};
};

enum class ChatFormat { llama2, llama3, llama3_1, llama4, qwen2_5, qwen3 };

class ChatTemplate {
 public:
  /// The template in a folder with a tokenizer. Raises Error with the file's path if the folder has
  /// no template, or one that is not built in.
  static ChatTemplate of(const std::filesystem::path& folder);
  /// The same, or none where of() raises Error.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder);

  /// From a template's text and the tokens that it may name. Raises Error that begins with `name`
  /// if the template is not built in.
  ChatTemplate(std::string_view text, std::string bos, std::string eos, std::string_view name);

  ChatFormat format() const { return format_; }

  /// The spelling of the token behind each of the assistant's messages.
  std::string end_of_turn() const;

  /// The conversation up to the place where the model answers. It names its special tokens, so
  /// encode it without with_special_tokens. Raises Error for an empty conversation, for a role
  /// other than these three, and for turns that the template refuses.
  std::string render(const std::vector<ChatMessage>& messages) const;

  /// The conversation to its end, as a text to train on. An answer's span begins where render() ends
  /// for the messages before it, if the template keeps their text. Raises Error as render() does.
  RenderedChat render_whole(const std::vector<ChatMessage>& messages) const;

  /// The date in llama3.1's system message. That of the template; or today if the template asks for
  /// it, as Llama 3.2's does.
  void set_date(std::string date) { date_ = std::move(date); }

 private:
  /// The text with which the model's turn begins.
  std::string opening() const;
  RenderedChat render_llama2(const std::vector<ChatMessage>& messages) const;
  RenderedChat render_llama3(const std::vector<ChatMessage>& messages) const;
  RenderedChat render_llama4(const std::vector<ChatMessage>& messages) const;
  RenderedChat render_qwen(const std::vector<ChatMessage>& messages) const;

  ChatFormat format_;
  std::string bos_, eos_, date_;
};

}  // namespace tessera
