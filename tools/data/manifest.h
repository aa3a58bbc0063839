// What a folder of prepared data says about itself: manifest.json.
//
// The manifest is written last. A folder without one is not finished.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct Manifest {
  /// A source text, or a token file of the folder.
  struct File {
    std::string path;
    std::int64_t bytes = 0;
    std::uint64_t checksum = 0;  // FNV-1a of all bytes
  };

  std::string tokenizer;  // "bytes" or "chars"
  std::int64_t vocab_size = 0;
  std::int64_t train_tokens = 0;
  std::int64_t val_tokens = 0;
  std::vector<File> inputs;
  std::vector<File> outputs;

  static constexpr const char* kFileName = "manifest.json";
};

/// Size and checksum of a file on disk, under the name `name`.
Manifest::File describe_file(const std::filesystem::path& path, const std::string& name);

/// Writes directory / "manifest.json" atomically.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);

/// Raises Error with the path if there is none or it is bad.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace tessera
