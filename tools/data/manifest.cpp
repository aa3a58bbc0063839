#include "tools/data/manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "tools/data/checksum.h"

namespace tessera {
namespace {

// JSON numbers lose the upper bits of a 64-bit checksum in many readers: hexadecimal text instead.
std::uint64_t checksum_from(const std::string& text) {
  std::uint64_t checksum = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, checksum, 16);
  check(error == std::errc() && end == last, "'{}' is not a checksum", text);
  return checksum;
}

nlohmann::ordered_json to_json(const std::vector<Manifest::File>& files) {
  auto list = nlohmann::ordered_json::array();
  for (const Manifest::File& file : files) {
    list.push_back({{"path", file.path},
                    {"bytes", file.bytes},
                    {"fnv1a_64", fmt::format("{:016x}", file.checksum)}});
  }
  return list;
}

std::vector<Manifest::File> files_from(const nlohmann::json& list) {
  std::vector<Manifest::File> files;
  for (const nlohmann::json& file : list) {
    files.push_back({file.at("path"), file.at("bytes"), checksum_from(file.at("fnv1a_64"))});
  }
  return files;
}

Manifest manifest_from(const nlohmann::json& json) {
  Manifest manifest;
  manifest.tokenizer = json.at("tokenizer");
  manifest.vocab_size = json.at("vocab_size");
  manifest.train_tokens = json.at("train_tokens");
  manifest.val_tokens = json.at("val_tokens");
  manifest.inputs = files_from(json.at("inputs"));
  manifest.outputs = files_from(json.at("outputs"));
  check(manifest.vocab_size >= 1, "vocab_size {} is not positive", manifest.vocab_size);
  return manifest;
}

}  // namespace

Manifest::File describe_file(const std::filesystem::path& path, const std::string& name) {
  const MappedFile file(path);
  return {name, static_cast<std::int64_t>(file.bytes().size()), fnv1a(file.bytes())};
}

void write_manifest(const std::filesystem::path& directory, const Manifest& manifest) {
  const nlohmann::ordered_json json = {
      {"tokenizer", manifest.tokenizer},       {"vocab_size", manifest.vocab_size},
      {"train_tokens", manifest.train_tokens}, {"val_tokens", manifest.val_tokens},
      {"inputs", to_json(manifest.inputs)},    {"outputs", to_json(manifest.outputs)}};
  write_file_atomically(directory / Manifest::kFileName, json.dump(2) + "\n");
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / Manifest::kFileName;
  const std::string text = read_text_file(path);
  try {
    return manifest_from(nlohmann::json::parse(text));
  } catch (const std::exception& error) {
    fail("{}: not a manifest of prepared data: {}", path.string(), error.what());
  }
}

}  // namespace tessera
