#include "runtime/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

/// At most `longest` bytes of a text as a JSON string, with "..." for the rest. Control characters are
/// escaped, DEL and those above it too, which JSON allows; invalid UTF-8 is replaced.
std::string quoted(std::string_view text, std::size_t longest) {
  const bool cut = text.size() > longest;
  const std::string dumped =
      Json(text.substr(0, longest))
          .dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  std::string made;
  for (std::size_t i = 0; i < dumped.size(); ++i) {
    const auto byte = static_cast<unsigned char>(dumped[i]);
    const auto next = static_cast<unsigned char>(i + 1 < dumped.size() ? dumped[i + 1] : 0);
    if (byte == 0x7f) {
      made += "\\u007f";
    } else if (byte == 0xc2 && next < 0xa0) {  // U+0080 to U+009F in UTF-8
      made += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      made += dumped[i];
    }
  }
  if (cut) made.insert(made.size() - 1, "...");
  return made;
}

/// The parser's message, which repeats the text that it could not read, however long and of any bytes.
std::string message_of(const Json::exception& error) {
  constexpr std::size_t kLongest = 200;
  std::string message = quoted(error.what(), kLongest);
  message = message.substr(1, message.size() - 2);
  for (std::size_t at = 0; (at = message.find("\\\"", at)) != message.npos; ++at)
    message.erase(at, 1);
  return message;
}

/// Refuses a hostile text while it is parsed, before its value is built.
class Guard {
 public:
  Guard(int deepest, std::string_view subject) : deepest_(deepest), subject_(subject) {}

  bool operator()(int /*depth*/, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
      check(static_cast<int>(keys_.size()) <= deepest_, "{} is nested more than {} levels deep",
            subject_, deepest_);
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) fail("{} has the key {} twice", subject_, excerpt(key));
    }
    return true;
  }

 private:
  const int deepest_;
  const std::string_view subject_;
  std::vector<std::set<std::string>> keys_;  // of every open object, outermost first
};

}  // namespace

Json parse_json(std::string_view text, int deepest, std::string_view subject) {
  // The parser would take a zero byte for the end of its input and ignore the rest.
  check(text.find('\0') == text.npos, "{} is not JSON: it has a zero byte", subject);
  Guard guard(deepest, subject);
  try {
    return Json::parse(text, std::ref(guard));
  } catch (const Json::exception& error) {
    fail("{} is not JSON: {}", subject, message_of(error));
  }
}

Json read_json_file(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  try {
    return parse_json(text);
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

std::string excerpt(std::string_view text) {
  return quoted(text, 60);
}

}  // namespace tessera
