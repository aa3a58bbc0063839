// Checkpoints as files: written by several ranks, read in other slices, damaged, and interrupted at
// every call to the system.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/file.h"
#include "runtime/random.h"
#include "runtime/safetensors.h"
#include "sharding/checkpoint/folder.h"
#include "sharding/checkpoint/reader.h"
#include "sharding/checkpoint/writer.h"
#include "tests/support/failing_files.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::FailingFiles;
using test::TemporaryDirectory;
using Bytes = std::vector<std::byte>;

struct Saved {
  std::string name;
  DType dtype;
  Shape shape;
};

const std::vector<Saved> kTensors = {{"matrix", DType::f32, {7, 3}},
                                     {"vector", DType::bf16, {5}},
                                     {"nothing", DType::f32, {0, 4}},
                                     {"matrix.m", DType::f32, {7, 3}}};

/// The bytes of a whole tensor.
Bytes values_of(const Saved& tensor, std::int64_t step) {
  const RandomStream random(1, tensor.name, static_cast<std::uint64_t>(step));
  Bytes bytes(static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
  return bytes;
}

FileCalls& good_calls() {
  static FailingFiles calls;
  return calls;
}

/// Saves `tensors` as so many ranks do.
void save(const fs::path& run, std::int64_t step, int ranks,
          const std::vector<Saved>& tensors = kTensors, FileCalls& calls = good_calls()) {
  const fs::path folder = unfinished_checkpoint_path(run, step);
  make_folder(calls, folder);
  CheckpointManifest manifest = {.step = step, .state = R"({"updates": 3})"};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<PartToWrite> parts;
    std::vector<Bytes> bytes;
    for (const Saved& tensor : tensors) {
      const ElementRange mine = share_of(tensor.shape.numel(), rank, ranks);
      const Bytes whole = values_of(tensor, step);
      const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
      parts.push_back(
          {tensor.name, tensor.dtype, tensor.shape, {.first = mine.begin}, mine.count()});
      bytes.emplace_back(whole.begin() + mine.begin * size, whole.begin() + mine.end * size);
    }
    manifest.add(write_rank_file(calls, folder, rank, parts,
                                 [&](std::size_t i) { return std::span(bytes[i]); }));
  }
  add_text_file(calls, folder, "config.yaml", "train:\n  steps: 3\n", manifest);
  write_file(calls, folder / CheckpointManifest::kFileName, to_json(manifest));
  publish_checkpoint(calls, run, step);
}

/// Whether the checkpoint has the values of its step, in every byte.
bool loads(const fs::path& run, std::int64_t step) {
  try {
    CheckpointReader reader(checkpoint_path(run, step));
    bool equal = reader.manifest().step == step && reader.problems().empty() &&
                 reader.text("config.yaml") == "train:\n  steps: 3\n";
    for (const Saved& tensor : kTensors) {
      const Bytes expected = values_of(tensor, step);
      Bytes found(expected.size());
      reader.read(tensor.name, 0, found);
      equal = equal && found == expected;
    }
    return equal;
  } catch (const Error&) {
    return false;
  }
}

std::string error_of(const fs::path& checkpoint) {
  try {
    CheckpointReader reader(checkpoint);
    const std::vector<std::string> problems = reader.problems();
    return problems.empty() ? "" : problems.front();
  } catch (const Error& error) {
    return error.what();
  }
}

void set_byte(const fs::path& path, std::size_t at, char value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(value);
}

/// A manifest with a right checksum and another text in one place.
std::string changed(const std::string& text, const std::string& from, const std::string& to) {
  const std::size_t first_line = text.find('\n') + 1;
  std::string body = text.substr(first_line);
  const std::size_t at = body.find(from);
  REQUIRE(at != std::string::npos);
  body.replace(at, from.size(), to);
  return fmt::format("{{\"checksum\": \"{:08x}\",\n{}", crc32c(std::as_bytes(std::span(body))),
                     body);
}

}  // namespace

TEST_CASE("a checkpoint of any number of ranks is read in any slices") {
  const TemporaryDirectory run;
  for (const int ranks : {1, 2, 3, 4, 9}) {
    CAPTURE(ranks);
    save(run.path(), ranks, ranks);
    CHECK(loads(run.path(), ranks));
    CheckpointReader reader(checkpoint_path(run.path(), ranks));
    CHECK(reader.manifest().files.size() == static_cast<std::size_t>(ranks) + 1);
    const Bytes whole = values_of(kTensors[0], ranks);
    for (std::int64_t first = 0; first <= 21; ++first) {
      for (std::int64_t last = first; last <= 21; ++last) {
        Bytes found(static_cast<std::size_t>(4 * (last - first)));
        reader.read("matrix", first, found);
        CHECK(std::equal(found.begin(), found.end(), whole.begin() + 4 * first));
      }
    }
  }
}

TEST_CASE("tensors of several blocks are verified block by block") {
  const TemporaryDirectory run;
  const std::vector<Saved> large = {{"a", DType::f32, {100, 1000}}, {"b", DType::f32, {777, 777}}};
  save(run.path(), 1, 2, large);
  const fs::path folder = checkpoint_path(run.path(), 1);
  CheckpointReader reader(folder);
  const Bytes whole = values_of(large[1], 1);
  for (const std::int64_t first : {0, 1, 262143, 300000, 603728}) {
    Bytes found(static_cast<std::size_t>(4 * (603729 - first)));
    reader.read("b", first, found);
    CHECK(std::equal(found.begin(), found.end(), whole.begin() + 4 * first));
  }
  set_byte(folder / "rank-00001.safetensors", 1'300'000, 'x');
  CheckpointReader damaged(folder);
  Bytes found(4 * 1000);
  CHECK_NOTHROW(damaged.read("a", 0, found));
  CHECK_NOTHROW(damaged.read("b", 310000, found));  // in the block before
  CHECK_THROWS_WITH(
      damaged.read("b", 580000, found),
      Contains("rank-00001.safetensors is damaged: the checksum of bytes 1048576 to ") &&
          Contains("they hold \"b\""));
}

TEST_CASE("a rank's file is a safetensors file") {
  const TemporaryDirectory run;
  save(run.path(), 1, 2);
  const SafetensorsFile file(checkpoint_path(run.path(), 1) / rank_file_name(1));
  CHECK(file.tensors().at("matrix").shape == Shape{11});
  CHECK(file.tensors().size() == 3);  // nothing of "nothing"
  save(run.path(), 2, 1);
  const SafetensorsFile whole(checkpoint_path(run.path(), 2) / rank_file_name(0));
  CHECK(whole.tensors().at("matrix").shape == Shape{7, 3});
}

TEST_CASE("every flipped byte of a checkpoint is found, and its file is named") {
  const TemporaryDirectory run;
  save(run.path(), 1, 2);
  const fs::path folder = checkpoint_path(run.path(), 1);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string good = read_text_file(entry.path());
    CAPTURE(name);
    int missed = 0;
    for (std::size_t i = 0; i < good.size(); ++i) {
      set_byte(entry.path(), i, static_cast<char>(good[i] ^ (1 << (i % 8))));
      if (error_of(folder).find(name) == std::string::npos) ++missed;
      set_byte(entry.path(), i, good[i]);
    }
    CHECK(missed == 0);
  }
  CHECK(error_of(folder).empty());
}

TEST_CASE("a file that is missing, too short or too long is named") {
  const TemporaryDirectory run;
  for (const std::string name : {"rank-00001.safetensors", "config.yaml", "manifest.json"}) {
    save(run.path(), 1, 2);
    const fs::path folder = checkpoint_path(run.path(), 1);
    const std::string good = read_text_file(folder / name);
    for (const std::string& bad : {good.substr(1), good + " "}) {
      std::ofstream(folder / name, std::ios::binary) << bad;
      CHECK_THAT(error_of(folder), Contains(name));
    }
    fs::remove(folder / name);
    CHECK_THAT(error_of(folder), Contains(name) && Contains("No such file"));
  }
}

TEST_CASE("a failure at any call leaves the new or the previous checkpoint") {
  using Fault = FailingFiles::Fault;
  const TemporaryDirectory folder;
  FailingFiles counter;
  fs::create_directory(folder / "counted");
  save(folder / "counted", 1, 2, kTensors, counter);
  delete_old_checkpoints(counter, folder / "counted", 1, 0);
  REQUIRE(counter.calls() > 12);
  int news = 0, olds = 0;
  for (const Fault fault : {Fault::once, Fault::from_now, Fault::short_write}) {
    for (std::int64_t call = 0; call < counter.calls() + 4; ++call) {
      const int code = call % 2 == 0 ? EIO : ENOSPC;
      const fs::path run = folder / fmt::format("{}-{}", static_cast<int>(fault), call);
      CAPTURE(run.string());
      fs::create_directory(run);
      save(run, 1, 2);
      FailingFiles calls(call, fault, code);
      try {
        save(run, 2, 2, kTensors, calls);
        CHECK(loads(run, 2));
        delete_old_checkpoints(calls, run, 1, 0);
      } catch (const Error& error) {
        CHECK_THAT(error.what(), Contains(run.string()) &&
                                     Contains(code == EIO ? "Input/output" : "No space left"));
      }
      const std::vector<CheckpointFolder> left = checkpoints_in(run);
      REQUIRE_FALSE(left.empty());
      for (const CheckpointFolder& checkpoint : left) CHECK(loads(run, checkpoint.step));
      (left.back().step == 2 ? news : olds) += 1;
      remove_partial_checkpoints(FileCalls::system(), run);
      save(run, 2, 2);  // the next attempt
      CHECK(loads(run, 2));
    }
  }
  CHECK(news > 0);
  CHECK(olds > 0);
}

TEST_CASE("files and names are on the disk before a checkpoint gets its name") {
  /// A letter for each call, but one for several writes in a row.
  class Log final : public FileCalls {
   public:
    int create(const char* path) override { return add('c', FileCalls::create(path)); }
    int make_folder(const char* path) override { return add('m', FileCalls::make_folder(path)); }
    int sync(int) override { return add('s', 0); }
    int rename(const char* from, const char* to) override {
      return add('r', FileCalls::rename(from, to));
    }
    int remove_folder(const char* path) override {
      return add('d', FileCalls::remove_folder(path));
    }
    ssize_t write(int file, const void* bytes, std::size_t count) override {
      if (!calls.ends_with('w')) calls += 'w';
      return FileCalls::write(file, bytes, count);
    }
    std::string calls;

   private:
    int add(char letter, int result) {
      calls += letter;
      return result;
    }
  };
  const TemporaryDirectory run;
  Log log;
  save(run.path(), 1, 2, kTensors, log);
  CHECK(log.calls == "mcwscwscwscwssrs");
  log.calls.clear();
  save(run.path(), 1, 1, kTensors, log);
  CHECK(log.calls == "mcwscwscwssrsdrs");
}

TEST_CASE("a checkpoint that is saved again takes the place of the first one") {
  const TemporaryDirectory run;
  save(run.path(), 1, 4);
  save(run.path(), 1, 2);
  CHECK(loads(run.path(), 1));
  CHECK_FALSE(fs::exists(checkpoint_path(run.path(), 1) / rank_file_name(3)));
}

TEST_CASE("the checkpoints of a run are found by their names, and partial ones are removed") {
  const TemporaryDirectory run;
  for (const char* name :
       {"step-000010", "step-000002", "step-1000000", "step-3", "step-0000004",
        "step-000005.unfinished", "step-000006.deleted", "step-00000a", "earlier.1"}) {
    fs::create_directory(run / name);
  }
  std::ofstream(run / "step-000011") << "a file";
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& found : checkpoints_in(run.path())) steps.push_back(found.step);
  CHECK(steps == std::vector<std::int64_t>{2, 10, 1000000});
  remove_partial_checkpoints(FileCalls::system(), run.path());
  CHECK_FALSE(fs::exists(run / "step-000005.unfinished"));
  CHECK_FALSE(fs::exists(run / "step-000006.deleted"));
  CHECK(fs::exists(run / "step-3"));
  CHECK(checkpoints_in(run / "none").empty());
}

TEST_CASE("old checkpoints are deleted, but never the last healthy one") {
  using Steps = std::vector<std::int64_t>;
  const auto all = [](std::initializer_list<std::int64_t> healthy) {
    std::vector<CheckpointHealth> checkpoints;
    for (const std::int64_t step : {5, 10, 15, 20, 25}) {
      const bool good = std::find(healthy.begin(), healthy.end(), step) != healthy.end();
      checkpoints.push_back({step, good});
    }
    return checkpoints;
  };
  CHECK(checkpoints_to_delete(all({5, 10, 15, 20, 25}), 2, 0) == Steps{5, 10, 15});
  CHECK(checkpoints_to_delete(all({5, 10, 15, 20, 25}), 9, 0).empty());
  CHECK(checkpoints_to_delete(all({5, 10, 15, 20, 25}), 1, 10) == Steps{5, 15});
  CHECK(checkpoints_to_delete(all({5, 10}), 2, 0) == Steps{5, 15});
  CHECK(checkpoints_to_delete(all({}), 2, 0) == Steps{5, 10, 15});
  CHECK(checkpoints_to_delete({}, 2, 0).empty());
}

TEST_CASE("columns of a matrix are one entry of a manifest, and many slices in memory") {
  CheckpointManifest manifest;
  manifest.files["a"] = {.bytes = 200, .checksums = {1}};
  manifest.files["b"] = {.bytes = 200, .checksums = {2}};
  // Rows of 10 elements: "a" has columns 0 to 5, and "b" has columns 6 to 9 of the first three rows.
  CheckpointTensor& tensor = manifest.tensors["w"];
  tensor = {.dtype = DType::f32, .shape = {4, 10}};
  for (std::int64_t row = 0; row < 4; ++row) {
    const std::int64_t first = 10 * row, in_file = row < 3 ? 6 : 10;
    tensor.slices.push_back({"a", 8 + 24 * row, {first, first + in_file}});
    if (row < 3) tensor.slices.push_back({"b", 16 * row, {first + 6, first + 10}});
  }
  const std::string text = to_json(manifest);
  CHECK(std::count(text.begin(), text.end(), '{') < 12);
  CHECK_THAT(text, Contains("\"runs\": 3") && Contains("\"stride\": 10"));
  const CheckpointManifest read = parse_manifest(text);
  CHECK_NOTHROW(check_complete(read));
  const std::vector<CheckpointSlice>& slices = read.tensors.at("w").slices;
  REQUIRE(slices.size() == tensor.slices.size());
  for (std::size_t i = 0; i < slices.size(); ++i) {
    CHECK(slices[i].file == tensor.slices[i].file);
    CHECK(slices[i].offset == tensor.slices[i].offset);
    CHECK(slices[i].elements.begin == tensor.slices[i].elements.begin);
    CHECK(slices[i].elements.end == tensor.slices[i].elements.end);
  }
}

TEST_CASE("a manifest that contradicts itself is refused") {
  const TemporaryDirectory run;
  save(run.path(), 1, 2);
  const fs::path path = checkpoint_path(run.path(), 1) / CheckpointManifest::kFileName;
  const std::string good = read_text_file(path);
  const auto refused = [&](const std::string& from, const std::string& to,
                           const std::string& message) {
    CAPTURE(from, to);
    std::ofstream(path, std::ios::binary) << changed(good, from, to);
    CHECK_THAT(error_of(path.parent_path()), Contains(message));
  };
  CHECK_NOTHROW(parse_manifest(changed(good, "3", "3")));
  refused("\"begin\": 10", "\"begin\": 11", "the slices have a gap at element 10");
  refused("\"begin\": 10", "\"begin\": 9", "the slices have an overlap at element 10");
  refused("\"end\": 21", "\"end\": 20", "the slices end at element 20 of 21");
  refused("\"end\": 21", "\"end\": 22", "a slice has the elements 10 to 22 of 21");
  refused("\"offset\": 2", "\"offset\": 92", "a slice does not fit its file");
  refused("\"offset\": 2", "\"offset\": -2", "not a number from 0");
  refused("\"bytes\": ", "\"bytes\": 9223372036854775807, \"b\": ", "blocks");
  refused("\"files\": {\n  \"config.yaml\"", "\"files\": {\n  \"../config.yaml\"",
          "not a plain file name");
  refused("\"file\": \"rank-00000.safetensors\"", "\"file\": \"rank-7\"", "is not listed");
  refused("\"dtype\": \"f32\"", "\"dtype\": \"f99\"", "f99");
  refused("\"shape\": [\n", "\"shape\": [\n -1,", "tensor \"matrix\"");
  refused("\"step\": 1", "\"step\": \"1\"", "'step'");
  refused("\"healthy\": true", "\"sick\": true", "healthy");
  refused("\"state\": {\n  \"updates\": 3\n }", "\"state\": 3", "'state' is not an object");
}

}  // namespace tessera
