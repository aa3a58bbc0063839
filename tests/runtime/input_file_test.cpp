#include "runtime/input_file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "runtime/error.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

std::string read(const InputFile& file, std::int64_t offset, std::size_t count) {
  std::string text(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

TEST_CASE("an input file is read at any offset") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "a") << "0123456789";
  const InputFile file(folder / "a");
  CHECK(file.size() == 10);
  CHECK(read(file, 3, 4) == "3456");
  CHECK(read(file, 0, 10) == "0123456789");
  CHECK(read(file, 10, 0).empty());
}

TEST_CASE("an input file that becomes shorter is an error with the path") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "a") << std::string(10'000, 'x');
  const InputFile file(folder / "a");
  fs::resize_file(folder / "a", 100);
  CHECK(read(file, 0, 100) == std::string(100, 'x'));
  CHECK_THROWS_WITH(read(file, 90, 20), Contains("a ends at byte 100, but had 10000 bytes"));
  CHECK_THROWS_WITH(read(file, 9'000, 20), Contains("ends at byte 9000"));
}

TEST_CASE("an input file that cannot be read is an error with the path") {
  const test::TemporaryDirectory folder;
  CHECK_THROWS_WITH(InputFile(folder / "none"), Contains("cannot open") && Contains("none"));
  CHECK_THROWS_WITH(InputFile(folder.path()), Contains("it is not a regular file"));
}

}  // namespace tessera
