#include "models/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool has(std::string_view text, std::string_view phrase) {
  return text.find(phrase) != std::string_view::npos;
}

/// A format by statements that write messages. All its published templates have them, and those of
/// other models do not. Lines are compared without the spaces around them.
struct Signature {
  ChatFormat format;
  std::vector<std::string_view> statements;
};

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> known = {
      {ChatFormat::llama2,
       {"{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = "
        "messages "
        "%}{% set system_message = false %}{% endif %}",
        "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == "
        "'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"}},
      {ChatFormat::llama3,
       {"{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
        "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% "
        "endif %}{{ content }}{% endfor %}{"}},
      {ChatFormat::llama3_1,
       {"{{- \"Cutting Knowledge Date: December 2023\n\" }}\n"
        "{{- \"Today Date: \" + date_string + \"\n\n\" }}",
        "{{- system_message }}\n{{- \"<|eot_id|>\" }}",
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] "
        "| trim + '<|eot_id|>' }}"}},
      {ChatFormat::llama4,
       {"{%- if user_supplied_system_message %}\n"
        "{{- \"<|header_start|>system<|header_end|>\n\n\" }}",
        "{{- system_message }}\n{{- \"<|eot|>\" }}",
        "{{- '<|header_start|>' + message['role'] + '<|header_end|>\n\n' }}"}},
      {ChatFormat::qwen2_5,
       {"{%- else %}\n{{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a "
        "helpful assistant.<|im_end|>\n' }}",
        "(message.role == \"assistant\" and not message.tool_calls) %}\n{{- '<|im_start|>' + "
        "message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"}},
      {ChatFormat::qwen3,
       {"namespace(multi_step_tool=true, last_query_index=messages|length - 1)",
        "'\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n')",
        "{{- '<|im_start|>assistant\n' }}\n{%- if enable_thinking is defined and enable_thinking "
        "is false %}\n{{- '<think>\n\n</think>\n\n' }}"}},
  };
  return known;
}

/// The template with line ends for the escape \n, and lines without the spaces around them.
std::string comparable(std::string_view text) {
  std::string lines;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text.substr(i).starts_with("\\n");
    const bool ends = escape || text[i] == '\n';
    while (ends && lines.ends_with(' ')) lines.pop_back();
    const bool leading = text[i] == ' ' && (lines.empty() || lines.back() == '\n');
    if (!leading) lines += ends ? '\n' : text[i];
    if (escape) ++i;
  }
  return lines;
}

ChatFormat format_of(std::string_view text, std::string_view name) {
  const std::string lines = comparable(text);
  for (const auto& [format, statements] : signatures()) {
    const auto stands = [&](std::string_view statement) { return has(lines, statement); };
    if (std::all_of(statements.begin(), statements.end(), stands)) return format;
  }
  fail(
      "{}: its chat template is not one of those built in (llama2, llama3, llama3.1, llama4, "
      "qwen2.5, qwen3); it begins with {}",
      name, excerpt(text));
}

/// The date that a llama3.1 template names, or today's if it asks for that.
std::string date_of(std::string_view text) {
  constexpr std::string_view kSet = "set date_string = \"";
  if (!has(text, "strftime_now") && has(text, kSet)) {
    const std::string_view rest = text.substr(text.find(kSet) + kSet.size());
    return std::string(rest.substr(0, rest.find('"')));
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> today{};
  std::strftime(today.data(), today.size(), "%d %b %Y", &local);
  return today.data();
}

/// As Python's str.strip() does.
std::string_view stripped(std::string_view text) {
  const auto is_space = [](char32_t point) {
    return is_white_space(point) || (point >= 0x1c && point <= 0x1f);
  };
  return tessera::stripped(text, /*left=*/true, /*right=*/true, is_space);
}

std::string_view without_leading_lines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}
std::string_view without_last_lines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

std::string header(std::string_view begin, std::string_view role, std::string_view end) {
  return std::string(begin).append(role).append(end) + "\n\n";
}

/// Appends a message. The span of an answer is its body and the token that ends it.
void add_message(RenderedChat& chat, std::string_view role, std::string_view head,
                 std::string_view body, std::string_view end) {
  chat.text += head;
  const std::size_t begin = chat.text.size();
  chat.text.append(body).append(end);
  if (role == "assistant") chat.answers.push_back({begin, chat.text.size()});
}

void add_llama3_message(RenderedChat& chat, std::string_view role, std::string_view content) {
  add_message(chat, role, header("<|start_header_id|>", role, "<|end_header_id|>"),
              stripped(content), "<|eot_id|>");
}

void add_qwen_message(RenderedChat& chat, std::string_view role, std::string_view content) {
  add_message(chat, role, "<|im_start|>" + std::string(role) + "\n", content, "<|im_end|>");
  chat.text += "\n";
}

/// The last user's message that is not the answer of a tool: qwen3 keeps thoughts after it.
std::size_t last_question(const std::vector<ChatMessage>& messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const ChatMessage& message = messages[i];
    const bool of_tool = message.content.starts_with("<tool_response>") &&
                         message.content.ends_with("</tool_response>");
    if (message.role == "user" && !of_tool) return i;
  }
  return messages.size() - 1;
}

/// An answer for qwen3: its thoughts are rewritten in the turn that is going on, dropped before.
std::string qwen3_answer(std::string_view text, bool last, bool going_on) {
  constexpr std::string_view kThink = "<think>", kEnd = "</think>";
  std::string_view content = text, thoughts;
  if (has(text, kEnd)) {
    content = without_leading_lines(text.substr(text.rfind(kEnd) + kEnd.size()));
    thoughts = without_last_lines(text.substr(0, text.find(kEnd)));
    if (has(thoughts, kThink)) thoughts.remove_prefix(thoughts.rfind(kThink) + kThink.size());
    thoughts = without_leading_lines(thoughts);
  }
  if (!going_on || (!last && thoughts.empty())) return std::string(content);
  return ("<think>\n" + std::string(without_last_lines(thoughts)) + "\n</think>\n\n")
      .append(without_leading_lines(content));
}

/// A special token of tokenizer_config.json, a text or an object with one; empty without it.
std::string token_in(const nlohmann::json& config, const char* key) {
  const auto value = config.find(key);
  if (value == config.end()) return {};
  if (value->is_string()) return value->get<std::string>();
  if (value->is_object() && value->contains("content") && (*value)["content"].is_string()) {
    return (*value)["content"].get<std::string>();
  }
  return {};
}

/// The template's text in tokenizer_config.json: a text, or a list of which one is the default.
std::optional<std::string> template_in(const nlohmann::json& config) {
  const auto value = config.find("chat_template");
  if (value == config.end()) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) return std::nullopt;
  for (const nlohmann::json& one : *value) {
    if (!one.is_object() || one.value("name", nlohmann::json()) != "default") continue;
    if (one.contains("template") && one["template"].is_string()) {
      return one["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

}  // namespace

ChatTemplate ChatTemplate::of(const fs::path& folder) {
  const fs::path config_path = folder / "tokenizer_config.json";
  const fs::path jinja = folder / "chat_template.jinja";
  const nlohmann::json config =
      fs::exists(config_path) ? read_json_file(config_path) : nlohmann::json::object();
  check(config.is_object(), "{}: not a JSON object", config_path.string());
  const bool separate = fs::exists(jinja);
  const std::optional<std::string> text = separate ? read_text_file(jinja) : template_in(config);
  check(text.has_value(),
        "{}: no chat template here, neither chat_template.jinja nor a text chat_template in "
        "tokenizer_config.json: the model was not trained on conversations",
        folder.string());
  return ChatTemplate(*text, token_in(config, "bos_token"), token_in(config, "eos_token"),
                      (separate ? jinja : config_path).string());
}

ChatTemplate::ChatTemplate(std::string_view text, std::string bos, std::string eos,
                           std::string_view name)
    : format_(format_of(text, name)), bos_(std::move(bos)), eos_(std::move(eos)) {
  if (format_ == ChatFormat::llama3_1) date_ = date_of(text);
}

std::optional<ChatTemplate> ChatTemplate::find(const fs::path& folder) {
  try {
    return of(folder);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string ChatTemplate::end_of_turn() const {
  switch (format_) {
    case ChatFormat::llama2:
      return eos_;
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return "<|eot_id|>";
    case ChatFormat::llama4:
      return "<|eot|>";
    case ChatFormat::qwen2_5:
    case ChatFormat::qwen3:
      return "<|im_end|>";
  }
  fail("no such chat format");
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
  return render_whole(messages).text + opening();
}

RenderedChat ChatTemplate::render_whole(const std::vector<ChatMessage>& messages) const {
  check(!messages.empty(), "a conversation needs at least one message");
  for (const ChatMessage& message : messages) {
    check(message.role == "system" || message.role == "user" || message.role == "assistant",
          "the role of a message is {}; expected system, user or assistant", excerpt(message.role));
  }
  switch (format_) {
    case ChatFormat::llama2:
      return render_llama2(messages);
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return render_llama3(messages);
    case ChatFormat::llama4:
      return render_llama4(messages);
    case ChatFormat::qwen2_5:
    case ChatFormat::qwen3:
      return render_qwen(messages);
  }
  fail("no such chat format");
}

std::string ChatTemplate::opening() const {
  switch (format_) {
    case ChatFormat::llama2:
      return "";  // an answer follows [/INST]
    case ChatFormat::llama3:
    case ChatFormat::llama3_1:
      return header("<|start_header_id|>", "assistant", "<|end_header_id|>");
    case ChatFormat::llama4:
      return header("<|header_start|>", "assistant", "<|header_end|>");
    case ChatFormat::qwen2_5:
    case ChatFormat::qwen3:
      return "<|im_start|>assistant\n";
  }
  fail("no such chat format");
}

RenderedChat ChatTemplate::render_llama2(const std::vector<ChatMessage>& messages) const {
  RenderedChat chat;
  std::string system;
  const std::size_t first = messages.front().role == "system" ? 1 : 0;
  if (first == 1) system = "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n";
  for (std::size_t i = first; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    check((role == "user") == ((i - first) % 2 == 0),
          "Llama 2's conversations alternate between user and assistant and begin with the user; "
          "message {} is the {}'s",
          i + 1, role);
    if (role == "user") {
      const std::string whole = i == first ? system + content : content;
      add_message(chat, role, bos_ + "[INST] ", stripped(whole), " [/INST]");
    } else if (role == "assistant") {
      add_message(chat, role, "", std::string(" ").append(stripped(content)) + " ", eos_);
    }
  }
  return chat;
}

RenderedChat ChatTemplate::render_llama3(const std::vector<ChatMessage>& messages) const {
  RenderedChat chat{.text = bos_};
  std::size_t first = 0;
  if (format_ == ChatFormat::llama3_1) {
    first = messages.front().role == "system" ? 1 : 0;
    chat.text += header("<|start_header_id|>", "system", "<|end_header_id|>") +
                 "Cutting Knowledge Date: December 2023\nToday Date: " + date_ + "\n\n";
    if (first == 1) chat.text += stripped(messages.front().content);
    chat.text += "<|eot_id|>";
  }
  for (std::size_t i = first; i < messages.size(); ++i) {
    add_llama3_message(chat, messages[i].role, messages[i].content);
  }
  return chat;
}

RenderedChat ChatTemplate::render_llama4(const std::vector<ChatMessage>& messages) const {
  RenderedChat chat{.text = bos_};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    add_message(chat, role, header("<|header_start|>", role, "<|header_end|>"),
                i == 0 && role == "system" ? stripped(content) : std::string_view(content),
                "<|eot|>");
  }
  return chat;
}

RenderedChat ChatTemplate::render_qwen(const std::vector<ChatMessage>& messages) const {
  const bool qwen3 = format_ == ChatFormat::qwen3;
  RenderedChat chat;
  if (!qwen3 && messages.front().role != "system") {
    add_qwen_message(chat, "system",
                     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
  }
  const std::size_t question = last_question(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const bool answer = qwen3 && role == "assistant";
    const bool last = i + 1 == messages.size();
    add_qwen_message(chat, role, answer ? qwen3_answer(content, last, i > question) : content);
  }
  return chat;
}

}  // namespace tessera
