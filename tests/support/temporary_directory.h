// A new folder for a test case, removed at the end of the scope.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "runtime/check.h"

namespace tessera::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "tessera-XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "cannot make a temporary folder {}", name);
    path_ = name;
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
