#include "tools/data/manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "runtime/json.h"
#include "tools/data/byte_source.h"
#include "tools/data/json_entries.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kMostVerifiedBytes = std::int64_t{1} << 30;
nlohmann::ordered_json to_json(const std::vector<Manifest::File>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const Manifest::File& file : files) {
    list.push_back(
        {{"path", file.path}, {"bytes", file.bytes}, {"fnv1a_64", hexadecimal(file.checksum)}});
  }
  return list;
}

std::vector<Manifest::File> files_of(const JsonEntries& entries, const char* key) {
  std::vector<Manifest::File> files;
  for (const JsonEntries& file : entries.objects(key)) {
    files.push_back({file.text("path"), file.integer("bytes"), file.checksum("fnv1a_64")});
  }
  return files;
}

const Manifest::File* find_output(const Manifest& manifest, const fs::path& name) {
  const auto found = std::find_if(manifest.outputs.begin(), manifest.outputs.end(),
                                  [&](const Manifest::File& file) { return file.path == name; });
  return found == manifest.outputs.end() ? nullptr : &*found;
}

/// The token files of a set, "train" or "val", hold so many tokens.
void check_sizes(const Manifest& manifest, const std::string& set, std::int64_t tokens) {
  std::int64_t bytes = 0, expected = bytes_per_token(manifest.vocab_size) * tokens, files = 0;
  for (const Manifest::File& file : manifest.outputs) {
    if (!is_shard_of(set, file.path)) continue;
    check(file.bytes <= std::numeric_limits<std::int64_t>::max() - bytes,
          "outputs lists more bytes of {}.bin than a file system holds", set);
    bytes += file.bytes;
    expected += TokenFile::kHeaderBytes;
    ++files;
  }
  check(files > 0, "outputs does not list {}.bin", set);
  check(bytes == expected, "{}.bin has {} bytes; {} tokens take {}", set, bytes, tokens, expected);
}

Manifest manifest_from(const json& object) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
  constexpr std::int64_t kMostIds = std::numeric_limits<std::int32_t>::max();
  const JsonEntries entries(object);
  Manifest manifest{.tokenizer = entries.text("tokenizer"),
                    .vocab_size = entries.integer("vocab_size", 1, kMostIds),
                    .train_tokens = entries.integer("train_tokens", 0, kMostTokens),
                    .val_tokens = entries.integer("val_tokens", 0, kMostTokens),
                    .inputs = files_of(entries, "inputs"),
                    .outputs = files_of(entries, "outputs")};
  check_sizes(manifest, "train", manifest.train_tokens);
  check_sizes(manifest, "val", manifest.val_tokens);
  return manifest;
}

/// The checksum to compare a file of so many bytes with; none if no manifest lists the file, or it is
/// too large to read. Raises Error if the manifest lists another size.
std::optional<std::uint64_t> listed_checksum(const fs::path& path, std::int64_t bytes) {
  const fs::path folder = path.parent_path();
  if (!fs::exists(folder / Manifest::kFileName)) return std::nullopt;
  const Manifest manifest = read_manifest(folder);
  const Manifest::File* const listed = find_output(manifest, path.filename());
  if (listed == nullptr) return std::nullopt;
  check(bytes == listed->bytes, "{} has {} bytes; {} lists {}. Run tessera prepare again",
        path.string(), bytes, (folder / Manifest::kFileName).string(), listed->bytes);
  return bytes <= kMostVerifiedBytes ? std::optional(listed->checksum) : std::nullopt;
}

}  // namespace

bool is_shard_of(const std::string& set, const std::string& file) {
  return std::regex_match(file, std::regex(set + R"((_\d{6,})?\.bin)"));
}

Manifest::File describe_file(const fs::path& path, const std::string& name) {
  FileSource file(path);
  Fnv1a hash;
  std::vector<std::byte> block(kBlockBytes);
  while (const std::size_t bytes = file.read(block)) hash.add(std::span(block).first(bytes));
  return {name, file.consumed(), hash.value()};
}

void write_manifest(const fs::path& directory, const Manifest& manifest) {
  const nlohmann::ordered_json object = {
      {"tokenizer", manifest.tokenizer},       {"vocab_size", manifest.vocab_size},
      {"train_tokens", manifest.train_tokens}, {"val_tokens", manifest.val_tokens},
      {"inputs", to_json(manifest.inputs)},    {"outputs", to_json(manifest.outputs)}};
  write_file_atomically(directory / Manifest::kFileName, object.dump(2) + "\n");
}

Manifest read_manifest(const fs::path& directory) {
  const fs::path path = directory / Manifest::kFileName;
  const std::string text = read_text_file(path);
  try {
    return manifest_from(parse_json(text));
  } catch (const std::exception& error) {
    fail("{}: not a manifest of prepared data: {}", path.string(), error.what());
  }
}

TokenFile open_verified(const fs::path& path, std::int64_t vocab_size) {
  TokenFile file(path);
  file.verify(vocab_size, listed_checksum(path, file.bytes()));
  return file;
}

std::optional<MarkFile> open_verified_marks(const TokenFile& tokens) {
  const fs::path path = mark_file_of(tokens.path());
  if (!fs::exists(path)) return std::nullopt;
  MarkFile file(path, tokens.size());
  file.verify(listed_checksum(path, file.bytes()));
  return file;
}

}  // namespace tessera
