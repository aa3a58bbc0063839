// The files that `prepare` reads and writes, for its tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/data/token_file.h"

namespace tessera::test {

inline std::filesystem::path write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::vector<TokenId> tokens_in(const std::filesystem::path& path) {
  const TokenFile file(path);
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

inline const std::set<std::string> kAllFiles = {"train.bin", "val.bin", "tokenizer.json",
                                                "tokenizer_config.json", "manifest.json"};

/// The tokens of a folder's training set and validation set, as characters.
inline std::pair<std::string, std::string> texts_in(const std::filesystem::path& folder) {
  const auto text = [&](const char* name) {
    std::string all;
    for (const TokenId token : tokens_in(folder / name)) all.push_back(static_cast<char>(token));
    return all;
  };
  return {text("train.bin"), text("val.bin")};
}

}  // namespace tessera::test
