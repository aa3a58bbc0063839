#include "runtime/file.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/error.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

int files_in(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

TEST_CASE("a mapped file shows the file's bytes") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "data") << "seven b";
  const MappedFile file(folder / "data");
  REQUIRE(text_of(file) == "seven b");
  REQUIRE(file.path() == folder / "data");
}

TEST_CASE("a mapped file outlives its name") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "data") << "old";
  const MappedFile file(folder / "data");
  write_file_atomically(folder / "data", "replaced");
  REQUIRE(text_of(file) == "old");
}

TEST_CASE("an empty file maps to an empty span") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "empty").flush();
  REQUIRE(MappedFile(folder / "empty").bytes().empty());
}

TEST_CASE("a path that cannot be mapped is refused with path and reason") {
  const test::TemporaryDirectory folder;
  REQUIRE_THROWS_WITH(MappedFile(folder / "none"),
                      Contains("none") && Contains("No such file or directory"));
  REQUIRE_THROWS_WITH(MappedFile(folder.path()),
                      Contains(folder.path().string()) && Contains("not a regular file"));
  REQUIRE_THROWS_WITH(MappedFile("/dev/null"), Contains("not a regular file"));
}

TEST_CASE("an atomic write makes or replaces the file and leaves no other file") {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "file";
  write_file_atomically(path, "first, and longer");
  REQUIRE(read_text_file(path) == "first, and longer");
  write_file_atomically(path, [](std::ostream& stream) { stream << "second" << '\0' << 7; });
  REQUIRE(read_text_file(path) == std::string("second\0007", 8));
  write_file_atomically(path, "");
  REQUIRE(read_text_file(path).empty());
  REQUIRE(files_in(folder.path()) == 1);
}

TEST_CASE("while an atomic write runs, readers see the old file") {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "file";
  write_file_atomically(path, "old");
  std::string seen;
  write_file_atomically(path, [&](std::ostream& stream) {
    stream << "new" << std::flush;
    seen = read_text_file(path);
  });
  REQUIRE(seen == "old");
  REQUIRE(read_text_file(path) == "new");
}

TEST_CASE("a writer that throws leaves the old file and no temporary") {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "file";
  write_file_atomically(path, "old");
  REQUIRE_THROWS_WITH(write_file_atomically(path,
                                            [](std::ostream& stream) {
                                              stream << "half of the n" << std::flush;
                                              throw std::runtime_error("disk on fire");
                                            }),
                      Contains(path.string()) && Contains("disk on fire"));
  REQUIRE(read_text_file(path) == "old");
  REQUIRE(files_in(folder.path()) == 1);
}

TEST_CASE("no temporary remains after an exception of any type") {
  const test::TemporaryDirectory folder;
  REQUIRE_THROWS_AS(write_file_atomically(folder / "file", [](std::ostream&) { throw 42; }), int);
  REQUIRE(files_in(folder.path()) == 0);
}

TEST_CASE("a failed stream is an error even if the writer does not check") {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "file";
  write_file_atomically(path, "old");
  REQUIRE_THROWS_WITH(
      write_file_atomically(path, [](std::ostream& out) { out.setstate(std::ios::badbit); }),
      Contains(path.string()));
  REQUIRE(read_text_file(path) == "old");
  REQUIRE(files_in(folder.path()) == 1);
}

TEST_CASE("an unwritable target is an error that names it") {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "plain").flush();
  // Even root cannot create files below a regular file or in /proc.
  REQUIRE_THROWS_WITH(
      write_file_atomically(folder / "plain" / "file", "text"),
      Contains((folder / "plain" / "file").string()) && Contains("Not a directory"));
  REQUIRE_THROWS_WITH(write_file_atomically(folder / "none" / "file", "text"),
                      Contains("No such file or directory"));
  REQUIRE_THROWS_AS(write_file_atomically("/proc/tessera", "text"), Error);
  fs::create_directory(folder / "taken");
  REQUIRE_THROWS_WITH(write_file_atomically(folder / "taken", "text"), Contains("directory"));
  REQUIRE(files_in(folder.path()) == 2);
}

TEST_CASE("threads that write one file at once leave one complete version") {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "file";
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 10; ++i) write_file_atomically(path, std::string(20000, letter));
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string text = read_text_file(path);
  REQUIRE(text == std::string(20000, text[0]));
  REQUIRE(files_in(folder.path()) == 1);
}

TEST_CASE("a leftover temporary of a killed run does no harm") {
  const test::TemporaryDirectory folder;
  std::string name;  // the temporary's, while it exists
  write_file_atomically(folder / "file", [&](std::ostream&) {
    name = fs::directory_iterator(folder.path())->path().filename();
  });
  std::ofstream(folder / name) << "leftover";
  write_file_atomically(folder / "file", "new");
  REQUIRE(read_text_file(folder / "file") == "new");
  REQUIRE(read_text_file(folder / name) == "leftover");
}

TEST_CASE(
    "a folder that is made writable loses the temporaries of killed processes, and no others") {
  const test::TemporaryDirectory folder;
  const auto temporary_of = [&] {
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().extension() == ".tmp") return entry.path();
    }
    throw Error("there is no temporary");
  };
  // The child ends inside a write, without destructors.
  test::run_child([&] { write_file_atomically(folder / "a", [](std::ostream&) { _exit(0); }); });
  const fs::path stale = temporary_of();
  std::ofstream(folder / "mine.tmp").flush();
  CHECK(files_in(folder.path()) == 2);
  make_writable_directory(folder.path());
  CHECK_FALSE(fs::exists(stale));
  CHECK(fs::exists(folder / "mine.tmp"));
  fs::remove(folder / "mine.tmp");
  // A temporary in use stays.
  write_file_atomically(folder / "b", [&](std::ostream& stream) {
    const fs::path used = temporary_of();
    make_writable_directory(folder.path());
    CHECK(fs::exists(used));
    stream << "text";
  });
  CHECK(read_text_file(folder / "b") == "text");
}

TEST_CASE("text of any length is read completely") {
  const test::TemporaryDirectory folder;
  const std::string text(200001, 'x');
  write_file_atomically(folder / "text", text);
  REQUIRE(read_text_file(folder / "text") == text);
  REQUIRE_FALSE(read_text_file("/proc/self/stat").empty());  // its size is reported as 0
  REQUIRE_THROWS_WITH(read_text_file(folder / "none"), Contains("none"));
  REQUIRE_THROWS_WITH(read_text_file(folder.path()), Contains("directory"));
}

TEST_CASE("a writable folder is made with its parents") {
  const test::TemporaryDirectory folder;
  make_writable_directory(folder / "a" / "b" / "c");
  make_writable_directory(folder / "a" / "b" / "c");
  REQUIRE(fs::is_directory(folder / "a" / "b" / "c"));
  REQUIRE(files_in(folder / "a" / "b" / "c") == 0);
  std::ofstream(folder / "plain").flush();
  REQUIRE_THROWS_WITH(make_writable_directory(folder / "plain"),
                      Contains((folder / "plain").string()));
  REQUIRE_THROWS_WITH(make_writable_directory(folder / "plain" / "below"),
                      Contains("Not a directory"));
  REQUIRE_THROWS_WITH(make_writable_directory("/proc/self"), Contains("/proc/self"));
}

}  // namespace tessera
