// Inputs of `tessera prepare` that are packed: archives, tables and the folders of data sets.
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <catch2/catch.hpp>

#include "runtime/file.h"
#include "tests/support/environment.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/input_files.h"
#include "tools/data/input_stream.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::TemporaryDirectory;
using test::write_text;
namespace fs = std::filesystem;

std::string gzipped(const std::string& text, const fs::path& room) {
  const gzFile file = gzopen(room.c_str(), "wb");
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
          static_cast<int>(text.size()));
  REQUIRE(gzclose(file) == Z_OK);
  return read_text_file(room);
}

std::string zstd_frame(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

/// Lines of JSON that a window of 32 KiB does not hold.
std::string many_lines(int first, int last) {
  std::string lines;
  for (int i = first; i < last; ++i) {
    lines += fmt::format("{{\"text\": \"line {} of {}\"}}\n", i, i * i);
  }
  return lines;
}

std::string prepared(const std::vector<fs::path>& inputs, const TemporaryDirectory& folder) {
  prepare({.inputs = inputs, .tokenizer = "bytes", .out = folder / "out", .val_fraction = 0.0});
  return test::texts_in(folder / "out").first;
}

/// A program in the place of Python: a shell script that gets Python's arguments.
class FakePython {
 public:
  FakePython(const TemporaryDirectory& folder, const std::string& script)
      : path_({{"PATH", folder.path().string() + ":" + std::getenv("PATH")}}) {
    write_text(folder / "python3", "#!/bin/sh\n" + script + "\n");
    ::chmod((folder / "python3").c_str(), 0755);
  }

 private:
  test::EnvironmentGuard path_;
};

}  // namespace

TEST_CASE("archives have the documents of the files in them, with members and frames") {
  const TemporaryDirectory folder;
  const std::string one = many_lines(0, 20000), two = many_lines(20000, 20010);
  const std::string expected = prepared({write_text(folder / "a.jsonl", one + two)}, folder);
  REQUIRE(expected.size() > 300'000);
  // Catch would print the texts.
  const auto same = [&](const char* name, const std::string& packed) {
    return prepared({write_text(folder / name, packed)}, folder) == expected;
  };
  const std::string first = gzipped(one, folder / "room"), second = gzipped(two, folder / "room");
  CHECK(same("a.jsonl.gz", first + second));
  CHECK(same("a.jsonl.zst", zstd_frame(one) + zstd_frame(two)));
  CHECK(prepared({write_text(folder / "b.txt.gz", gzipped("plain", folder / "room"))}, folder) ==
        "plain");
  CHECK(prepared({write_text(folder / "b.json.zst", zstd_frame("[\"x\", \"y\"]"))}, folder) ==
        "xy");
}

TEST_CASE("progress counts the bytes of archives as they are packed") {
  const TemporaryDirectory folder;
  const std::string packed = zstd_frame(many_lines(0, 50000));
  std::int64_t last = 0;
  prepare({.inputs = {write_text(folder / "a.jsonl.zst", packed)},
           .tokenizer = "bytes",
           .out = folder / "out",
           .progress = [&](const PrepareProgress& progress) {
             CHECK(progress.bytes >= last);
             CHECK(progress.bytes <= progress.all_bytes);
             last = progress.bytes;
           }});
  CHECK(10 * last > 9 * static_cast<std::int64_t>(packed.size()));
}

TEST_CASE("a truncated or damaged archive is one line with the file and the way on") {
  const TemporaryDirectory folder;
  const std::string text = many_lines(0, 3000);
  const std::string gz = gzipped(text, folder / "room"), zst = zstd_frame(text);
  const auto error = [&](const std::string& name, const std::string& bytes) {
    const fs::path path = write_text(folder / name, bytes);
    const std::string message = test::error_of([&] { prepared({path}, folder); });
    CHECK(message.find('\n') == message.npos);
    CHECK_THAT(message,
               Catch::StartsWith(path.string() + ": ") && Contains("download or compress"));
    return message;
  };
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4}, gz.size() / 2, gz.size() - 1}) {
    CAPTURE(cut);
    CHECK_THAT(error("a.jsonl.gz", gz.substr(0, cut)), Contains("truncated"));
  }
  for (const std::size_t cut : {std::size_t{1}, std::size_t{6}, zst.size() / 2, zst.size() - 1}) {
    CAPTURE(cut);
    CHECK_THAT(error("a.jsonl.zst", zst.substr(0, cut)), Contains("truncated"));
  }
  std::string bad = gz;
  bad[bad.size() - 6] ^= 1;  // a byte of the checksum
  CHECK_THAT(error("b.jsonl.gz", bad),
             Contains("no gzip archive, or damaged") && Contains("check"));
  CHECK_THAT(error("c.jsonl.gz", "{\"text\": \"not packed\"}\n"), Contains("no gzip archive"));
  CHECK_THAT(error("c.jsonl.zst", "{\"text\": \"not packed\"}\n"), Contains("no zstd archive"));
  CHECK_THAT(error("d.jsonl.gz", gz + "more"), Contains("no gzip archive, or damaged"));
}

TEST_CASE("an archive whose window does not fit is refused with the command that unpacks it") {
  const TemporaryDirectory folder;
  // The header of a frame with a window of 2^31 bytes (RFC 8878, section 3.1.1.1).
  const std::string header = {'\x28', '\xb5', '\x2f',
                              '\xfd', '\x00', static_cast<char>((31 - 10) << 3)};
  const fs::path path = write_text(folder / "a.jsonl.zst", header + std::string(64, '\0'));
  CHECK_THAT(test::error_of([&] { prepared({path}, folder); }),
             Contains("a.jsonl.zst") && Contains("zstd -d --long=31"));
}

TEST_CASE("the rows of tables come from the script, with the columns of the keys") {
  const TemporaryDirectory folder;
  const fs::path table = write_text(folder / "a.parquet", "PAR1");
  SECTION("rows are documents") {
    const FakePython python(folder, "echo '{\"text\": \"one\"}'; echo '{\"text\": \"two\"}'");
    CHECK(prepared({table}, folder) == "onetwo");
  }
  SECTION("the script gets the file and the keys") {
    const FakePython python(folder, "shift 2; echo \"{\\\"text\\\": \\\"$*\\\"}\"");
    CHECK(prepared({table}, folder) == table.string());
    InputStream keyed(table, {"title", "body"});
    CHECK(keyed.kind() == ".jsonl");
    CHECK(keyed.rest() == "{\"text\": \"" + table.string() + " --keys=title,body\"}\n");
  }
  SECTION("a row that is no document is named by its number") {
    const FakePython python(folder, "echo '{\"text\": \"one\"}'; echo '{'");
    CHECK_THAT(test::error_of([&] { prepared({table}, folder); }), Contains("a.parquet:2: "));
  }
  SECTION("its last line of errors is the message") {
    const FakePython python(folder,
                            "echo '{\"text\": \"one\"}'; echo warning >&2; "
                            "echo 'a.parquet: damaged' >&2; exit 1");
    CHECK(test::error_of([&] { prepared({table}, folder); }) == "a.parquet: damaged");
  }
  SECTION("the signal that ended it is the message") {
    const FakePython python(folder, "kill -9 $$");
    CHECK_THAT(test::error_of([&] { prepared({table}, folder); }),
               Contains("a.parquet: ") && Contains("signal 9"));
  }
  SECTION("without Python it says what to install") {
    const test::EnvironmentGuard path({{"PATH", (folder / "nowhere").string()}});
    CHECK_THAT(test::error_of([&] { prepared({table}, folder); }),
               Contains("a.parquet: ") && Contains("install Python and pyarrow"));
  }
}

TEST_CASE("a reader that stops early ends the script") {
  const TemporaryDirectory folder;
  const FakePython python(folder, "while :; do echo '{}'; done");
  InputStream stream(write_text(folder / "a.arrow", ""));
  std::string line;
  CHECK(stream.next_line(line));
  CHECK(line == "{}");  // and the end of the scope does not wait for the script's end
}

TEST_CASE("a folder that `datasets` saved has the files of its list, of the split train") {
  const TemporaryDirectory folder;
  const auto save = [&](const std::string& name) {
    fs::create_directories(folder / name);
    write_text(folder / (name + "/dataset_info.json"), "{\"features\": {}}");
    write_text(folder / (name + "/state.json"),
               R"({"_data_files": [{"filename": "data-00001-of-00002.arrow"},
                                   {"filename": "data-00000-of-00002.arrow"}]})");
    for (const char* file : {"data-00000-of-00002.arrow", "data-00001-of-00002.arrow"}) {
      write_text(folder / (name + "/" + file), "");
    }
  };
  save("a/train");
  save("a/test");
  const std::vector<fs::path> expected = {folder / "a/train/data-00001-of-00002.arrow",
                                          folder / "a/train/data-00000-of-00002.arrow"};
  CHECK(find_text_files({folder / "a/train"}) == expected);
  write_text(folder / "a/dataset_dict.json", R"({"splits": ["test", "train"]})");
  CHECK(find_text_files({folder / "a"}) == expected);
  write_text(folder / "a/dataset_dict.json", R"({"splits": ["test"]})");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "a"}); }),
             Contains("no split 'train'") && Contains("a/test"));
  fs::remove(folder / "a/train/data-00000-of-00002.arrow");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "a/train"}); }),
             Contains("data-00000-of-00002.arrow is missing"));
  write_text(folder / "a/train/state.json", "{}");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "a/train"}); }),
             Contains("state.json") && Contains("_data_files"));
}

TEST_CASE("a folder from the hub has the training files of one data set, and all of them") {
  const TemporaryDirectory folder;
  fs::create_directories(folder / "hub/data");
  const auto add = [&](const std::string& name) {
    return write_text(folder / ("hub/" + name), "");
  };
  add("README.md");
  add("data/test-00000-of-00001.parquet");
  const fs::path first = add("data/train-00000-of-00002.parquet");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "hub"}); }),
             Contains("1 of the data set's 2 files"));
  const fs::path second = add("data/train-00001-of-00002.parquet");
  CHECK(find_text_files({folder / "hub"}) == std::vector<fs::path>{first, second});
  fs::create_directories(folder / "hub/other");
  add("other/train-00000-of-00001.parquet");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "hub"}); }),
             Contains("several data sets") && Contains("hub/data") && Contains("hub/other"));
  CHECK(find_text_files({folder / "hub/data"}) == std::vector<fs::path>{first, second});
  fs::remove(first);
  fs::remove(second);
  fs::remove_all(folder / "hub/other");
  add("data/validation-00000-of-00001.parquet");
  CHECK_THAT(test::error_of([&] { find_text_files({folder / "hub"}); }),
             Contains("the splits test, validation and no 'train'"));
}

TEST_CASE("a folder of documents has its archives and tables too") {
  const TemporaryDirectory folder;
  fs::create_directories(folder / "in");
  std::vector<fs::path> expected;
  for (const char* name : {"a.jsonl.gz", "b.txt.zst", "c.parquet", "d.feather", "e.md"}) {
    expected.push_back(write_text(folder / ("in/" + std::string(name)), ""));
  }
  write_text(folder / "in/f.tar.gz", "");
  write_text(folder / "in/g.gz", "");
  CHECK(find_text_files({folder / "in"}) == expected);
}

}  // namespace tessera
