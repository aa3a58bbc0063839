#include "runtime/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

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
    fail("{} is not JSON: {}", subject, error.what());
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
  constexpr std::size_t kLongest = 60;
  const bool cut = text.size() > kLongest;
  const auto handler = Json::error_handler_t::replace;
  std::string quoted =
      Json(text.substr(0, kLongest)).dump(-1, ' ', /*ensure_ascii=*/false, handler);
  if (cut) quoted.insert(quoted.size() - 1, "...");
  return quoted;
}

}  // namespace tessera
