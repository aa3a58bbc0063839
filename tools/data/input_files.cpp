#include "tools/data/input_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/data/input_stream.h"
#include "tools/data/json_entries.h"
#include "tools/data/table_source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train";

/// The files below a folder, sorted by path, without hidden ones.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    if (entry->path().filename().string().starts_with(".")) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_document_file(const fs::path& file) {
  static const std::set<std::string> kinds = {".txt", ".md", ".json", ".jsonl", ".yaml", ".yml"};
  return kinds.contains(kind_of_input(file));
}

/// "name one of them as the input: DIR/a, DIR/b".
std::string choice_of(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back((folder / name).string());
  return fmt::format("name one of them as the input: {}", fmt::join(paths, ", "));
}

/// The data files that save_to_disk wrote into a folder, if it did: one split, or a folder of splits.
std::optional<std::vector<fs::path>> saved_data_set(const fs::path& folder) {
  const auto read = [&](const char* name, const auto& take) {
    const nlohmann::json json = read_json_file(folder / name);
    try {
      return take(JsonEntries(json));
    } catch (const Error& error) {
      fail("{}: not as `datasets` writes it: {}", (folder / name).string(), error.what());
    }
  };
  if (fs::exists(folder / "dataset_dict.json")) {
    std::set<std::string> splits;
    read("dataset_dict.json", [&](const JsonEntries& entries) {
      for (const auto& name : entries.at("splits")) splits.insert(name.get<std::string>());
    });
    check(splits.contains(kTrain), "{} has no split 'train'; {}", folder.string(),
          choice_of(folder, splits));
    return saved_data_set(folder / kTrain);
  }
  if (!fs::exists(folder / "state.json") || !fs::exists(folder / "dataset_info.json")) {
    return std::nullopt;
  }
  std::vector<fs::path> files;
  read("state.json", [&](const JsonEntries& entries) {
    for (const JsonEntries& file : entries.objects("_data_files")) {
      files.push_back(folder / file.text("filename"));
    }
  });
  for (const fs::path& file : files) {
    check(fs::exists(file), "{} is missing, which {} lists; save or copy the data set again",
          file.string(), (folder / "state.json").string());
  }
  check(!files.empty(), "the data set in {} has no file", folder.string());
  return files;
}

/// The training files among those of a folder from the hub. None: their names are others.
std::optional<std::vector<fs::path>> hub_data_set(const fs::path& folder,
                                                  const std::vector<fs::path>& files) {
  static const std::regex form(R"((\w+?)(-\d{5}-of-(\d{5}))?)");
  struct Split {
    std::vector<fs::path> files;
    std::size_t expected = 1;
  };
  std::map<std::string, std::map<std::string, Split>> splits;  // by their names and folders
  bool numbered = false;
  for (const fs::path& file : files) {
    std::smatch match;
    const std::string stem = file.stem();
    if (!is_table(file) || !std::regex_match(stem, match, form)) continue;
    Split& split = splits[match[1]][file.parent_path().lexically_relative(folder)];
    split.files.push_back(file);
    if (match[3].matched) split.expected = std::stoul(match[3]);
    numbered = numbered || match[3].matched;
  }
  if (!numbered && !splits.contains(kTrain)) return std::nullopt;
  std::set<std::string> names, folders;
  for (const auto& [name, split] : splits) names.insert(name);
  check(names.size() == 1 || names.contains(kTrain),
        "{} has the splits {} and no 'train'; name the files of one, such as {}-*", folder.string(),
        fmt::join(names, ", "), *names.begin());
  const auto& chosen = names.size() == 1 ? splits.begin()->second : splits[kTrain];
  for (const auto& [name, split] : chosen) folders.insert(name);
  check(folders.size() == 1, "{} has several data sets; {}", folder.string(),
        choice_of(folder, folders));
  const Split& split = chosen.begin()->second;
  check(split.files.size() == split.expected,
        "{}: {} of the data set's {} files are here; download the others, or name the files as "
        "inputs",
        split.files.front().parent_path().string(), split.files.size(), split.expected);
  return split.files;
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  if (const auto files = saved_data_set(folder)) return *files;
  std::vector<fs::path> files = files_below(folder);
  if (const auto chosen = hub_data_set(folder, files)) return *chosen;
  std::erase_if(files, [](const fs::path& file) { return !is_document_file(file); });
  check(!files.empty(),
        "{} has no .txt, .md, .json, .jsonl, .yaml, .yml, .parquet, .arrow or .feather file, as it "
        "is or as .gz or .zst",
        folder.string());
  return files;
}

}  // namespace

std::vector<fs::path> find_text_files(const std::vector<fs::path>& inputs) {
  std::vector<fs::path> files;
  for (const fs::path& input : inputs) {
    const std::string name = input.string();
    check(fs::exists(input) || name.find_first_of("*?") == name.npos,
          "there is no file named {}; write the pattern without quotes, so that the shell expands "
          "it",
          name);
    check(fs::exists(input), "there is no file or folder named {}", name);
    if (!fs::is_directory(input)) {
      files.push_back(input);
      continue;
    }
    const std::vector<fs::path> found = files_of_folder(input);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace tessera
