// Fuzz target: the manifest.json next to small token files.
#include "tools/data/manifest.h"

#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  for (const char* const name : {"train.bin", "val.bin"}) {
    static const std::vector<TokenId> tokens(5, 7);
    if (!std::filesystem::exists(folder() / name)) write_token_file(folder() / name, tokens, 256);
  }
  write_file("manifest.json", input);
  const bool is_manifest = reads([&] { read_manifest(folder().path()); });
  for (const char* const name : {"train.bin", "val.bin"}) {
    reads([&] { open_verified(folder() / name, 256); });
  }
  return is_manifest;
}

}  // namespace tessera::fuzz
