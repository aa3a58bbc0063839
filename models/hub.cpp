#include "models/hub.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_part(std::string_view part) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !part.empty() && part.front() != '.' && part.front() != '-' &&
         part.find_first_not_of(kLetters) == std::string_view::npos;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

fs::path cache_folder() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(variable("HOME")) / ".cache/huggingface/hub";
}

/// The text of a small file without the spaces around it; empty if there is no such file.
std::string word_in(const fs::path& path) {
  if (!fs::is_regular_file(path)) return {};
  std::string text = read_text_file(path);
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  std::erase_if(text, is_space);
  return text;
}

}  // namespace

bool is_hub_name(const fs::path& name) {
  const std::string text = name.string();
  const std::size_t slash = text.find('/');
  return slash != std::string::npos && is_part(text.substr(0, slash)) &&
         is_part(text.substr(slash + 1));
}

fs::path hub_snapshot(const fs::path& name) {
  std::string folder = name.string();
  folder.replace(folder.find('/'), 1, "--");
  const fs::path repository = cache_folder() / ("models--" + folder);
  const std::string download =
      "download it with 'hf download " + name.string() + "', or set HF_HOME";
  check(fs::is_directory(repository), "{}: no such folder, and the hub's cache has no {}; {}",
        name.string(), repository.string(), download);
  const std::string hash = word_in(repository / "refs/main");
  const fs::path snapshot = repository / "snapshots" / hash;
  check(is_part(hash) && fs::is_directory(snapshot),
        "{}: {} is incomplete: refs/main does not name a folder of snapshots; {}", name.string(),
        repository.string(), download);
  return snapshot;
}

}  // namespace tessera
