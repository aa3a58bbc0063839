// Chat templates against Transformers' rendering. tests/golden/chat.py makes the cases.
#include "models/chat_template.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "runtime/file.h"
#include "runtime/json.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

nlohmann::json golden_templates() {
  return read_json_file(TESSERA_SOURCE_DIR "/tests/golden/chat/cases.json")["templates"];
}

nlohmann::json golden(const std::string& name) {
  for (const nlohmann::json& one : golden_templates()) {
    if (one["name"] == name) return one;
  }
  FAIL("no golden template " << name);
  return {};
}

std::string text_or_empty(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

ChatTemplate template_of(const nlohmann::json& one) {
  ChatTemplate result(one["template"].get<std::string>(), text_or_empty(one["bos"]),
                      text_or_empty(one["eos"]), "golden");
  if (one["date"].is_string()) result.set_date(one["date"]);
  return result;
}

std::vector<ChatMessage> messages_of(const nlohmann::json& test) {
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& message : test["messages"]) {
    messages.push_back({message["role"], message["content"]});
  }
  return messages;
}

}  // namespace

TEST_CASE("every family's chat template renders as Transformers renders it") {
  int rendered = 0, refused = 0;
  for (const nlohmann::json& one : golden_templates()) {
    if (one["name"].is_null()) continue;
    const ChatTemplate chat = template_of(one);
    for (const nlohmann::json& test : one["cases"]) {
      CAPTURE(one["name"], test["messages"].dump());
      if (test["rendered"].is_null()) {
        CHECK_THROWS_WITH(chat.render(messages_of(test)), Contains("alternate"));
        ++refused;
      } else {
        CHECK(chat.render(messages_of(test)) == test["rendered"].get<std::string>());
        ++rendered;
      }
    }
  }
  CHECK(rendered >= 90);
  CHECK(refused >= 3);
}

TEST_CASE("the answers of a conversation lie where Transformers' renderings have them") {
  int answers = 0;
  for (const nlohmann::json& one : golden_templates()) {
    if (one["name"].is_null()) continue;
    const ChatTemplate chat = template_of(one);
    for (const nlohmann::json& test : one["cases"]) {
      if (test["rendered"].is_null()) continue;
      CAPTURE(one["name"], test["messages"].dump());
      const RenderedChat rendered = chat.render_whole(messages_of(test));
      CHECK(rendered.text == test["whole"]);
      nlohmann::json spans = nlohmann::json::array();
      for (const auto& [begin, end] : rendered.answers) {
        spans.push_back({begin, end});
        CHECK(rendered.text.substr(begin, end - begin).ends_with(chat.end_of_turn()));
        CHECK_FALSE(chat.end_of_turn().empty());
      }
      CHECK(spans == test["answers"]);
      answers += static_cast<int>(spans.size());
    }
  }
  CHECK(answers >= 70);
}

TEST_CASE("a template is found in either file of a folder, and goes by its statements") {
  const test::TemporaryDirectory folder;
  const nlohmann::json llama2 = golden("llama2"), qwen3 = golden("qwen3");
  const auto write = [&](const nlohmann::json& config) {
    write_file_atomically(folder / "tokenizer_config.json", config.dump());
  };
  const std::vector<ChatMessage> hello = {{"user", "hello"}};
  write({{"chat_template", llama2["template"]},
         {"bos_token", {{"content", "<B>"}}},
         {"eos_token", "<E>"}});
  CHECK(ChatTemplate::of(folder.path()).render(hello) == "<B>[INST] hello [/INST]");
  const nlohmann::json named = {{{"name", "tool_use"}, {"template", "?"}},
                                {{"name", "default"}, {"template", qwen3["template"]}}};
  write({{"chat_template", named}});
  CHECK(ChatTemplate::of(folder.path()).format() == ChatFormat::qwen3);
  write_file_atomically(folder / "chat_template.jinja",
                        golden("qwen2.5")["template"].get<std::string>());
  CHECK(ChatTemplate::of(folder.path()).format() == ChatFormat::qwen2_5);
}

TEST_CASE("other templates, and none, are refused in one line with their place") {
  const test::TemporaryDirectory folder;
  CHECK_THROWS_WITH(ChatTemplate::of(folder.path()),
                    Contains(folder.path().string() + ": no chat template here"));
  for (const nlohmann::json& one : golden_templates()) {
    if (!one["name"].is_null()) continue;
    write_file_atomically(folder / "tokenizer_config.json",
                          nlohmann::json{{"chat_template", one["template"]}}.dump());
    CHECK_THROWS_WITH(ChatTemplate::of(folder.path()),
                      Contains("tokenizer_config.json: its chat template is not one of those "
                               "built in (llama2, ") &&
                          Contains("begins with \"{% for message in messages %}"));
  }
  write_file_atomically(folder / "tokenizer_config.json", "[]");
  CHECK_THROWS_WITH(ChatTemplate::of(folder.path()), Contains("not a JSON object"));
  for (const char* const damaged : {R"({"chat_template": 3})", R"({"chat_template": [1, {}]})",
                                    R"({"chat_template": [{"name": 1, "template": 2}]})"}) {
    write_file_atomically(folder / "tokenizer_config.json", damaged);
    CHECK_THROWS_WITH(ChatTemplate::of(folder.path()), Contains("no chat template here"));
  }
}

TEST_CASE("a template that writes messages in another way is refused, whatever else it shares") {
  const auto [name, statement, other] = GENERATE(table<std::string, std::string, std::string>(
      {{"llama2", "system_message = false", "system_message = 'You are helpful.'"},
       {"llama2", "content.strip() + ' '", "content + ' '"},
       {"llama3", "| trim + '<|eot_id|>'", "+ '<|eot_id|>'"},
       {"llama3.1", "| trim + '<|eot_id|>'", "+ '<|eot_id|>'"},
       {"llama3.2", "December 2023", "March 2023"},
       {"llama4", "'<|header_end|>\\n\\n' }}", "'<|header_end|>\\n' }}"},
       {"qwen2.5", "You are a helpful assistant.", "You are brief."},
       {"qwen3", "<|im_start|>assistant\\n' }}", "<|im_start|>assistant\\n<think>\\n' }}"}}));
  std::string text = golden(name)["template"];
  CHECK_NOTHROW(ChatTemplate(text, "", "", "golden"));
  const std::size_t place = text.find(statement);
  REQUIRE(place != std::string::npos);
  text.replace(place, statement.size(), other);
  CHECK_THROWS_WITH(ChatTemplate(text, "", "", "golden"),
                    Contains("golden: its chat template is not one of those built in"));
}

TEST_CASE("an unknown role and an empty conversation are refused") {
  const ChatTemplate chat = template_of(golden("qwen3"));
  CHECK_THROWS_WITH(chat.render({}), Contains("at least one message"));
  CHECK_THROWS_WITH(chat.render({{"tool", "5"}}), Contains("the role of a message is \"tool\""));
}

TEST_CASE("a template that asks for today's date gets it") {
  const nlohmann::json one = golden("llama3.2");
  const ChatTemplate chat(one["template"].get<std::string>(), "", "", "golden");
  const std::string text = chat.render({{"user", "x"}});
  CHECK(std::regex_search(text, std::regex("Today Date: [0-3][0-9] [A-Z][a-z]{2} 20[0-9]{2}\n")));
}

}  // namespace tessera
