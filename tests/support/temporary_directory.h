// An empty directory that is gone, with all it holds, when the test ends.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "runtime/check.h"

namespace tessera::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "tessera_test_XXXXXX";
    check(::mkdtemp(pattern.data()) != nullptr, "cannot make a directory like {}", pattern);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::test
