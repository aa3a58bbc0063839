// TensorBoard's file, read back by a parser of its own. tensorboard_check.py uses the real one.
#include "tools/train/tensorboard.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "runtime/crc32c.h"
#include "tests/tools/tiny_run.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryDirectory;

/// The fields of a protobuf message by number. Numbers are as their bits.
struct Message {
  std::multimap<std::uint64_t, std::uint64_t> numbers;
  std::multimap<std::uint64_t, std::string> texts;

  explicit Message(std::string_view bytes) {
    std::size_t at = 0;
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<unsigned char>(bytes.at(at++));
        value |= std::uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    const auto fixed = [&](std::size_t size) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.substr(at, size).data(), size);
      at += size;
      return value;
    };
    while (at < bytes.size()) {
      const std::uint64_t key = varint();
      const std::uint64_t number = key >> 3;
      if ((key & 7) == 0) numbers.emplace(number, varint());
      if ((key & 7) == 1) numbers.emplace(number, fixed(8));
      if ((key & 7) == 5) numbers.emplace(number, fixed(4));
      if ((key & 7) == 2) {
        const std::size_t size = varint();
        texts.emplace(number, bytes.substr(at, size));
        at += size;
      }
    }
    REQUIRE(at == bytes.size());
  }
  std::string text(std::uint64_t number) const { return texts.find(number)->second; }
  std::uint64_t number(std::uint64_t number) const { return numbers.find(number)->second; }
};

/// The events of a file. Tests their checksums.
std::vector<Message> events_in(const fs::path& file) {
  const std::string bytes = read_text_file(file);
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.substr(at, size).data(), size);
    return value;
  };
  // As tensorflow/core/lib/hash/crc32c.h states it.
  const auto masked = [&](std::size_t at, std::size_t size) {
    const std::uint32_t crc = crc32c_by_table(std::as_bytes(std::span(bytes).subspan(at, size)));
    return static_cast<std::uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
  };
  std::vector<Message> events;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t size = number(at, 8);
    REQUIRE(number(at + 8, 4) == masked(at, 8));
    REQUIRE(number(at + 12 + size, 4) == masked(at + 12, size));
    events.emplace_back(std::string_view(bytes).substr(at + 12, size));
    at += 16 + size;
  }
  REQUIRE(at == bytes.size());
  return events;
}

/// The scalars of an event by their tags.
std::map<std::string, float> scalars_of(const Message& event) {
  std::map<std::string, float> scalars;
  const Message summary(event.text(5));
  for (const auto& [number, text] : summary.texts) {
    const Message value(text);
    scalars[value.text(1)] = std::bit_cast<float>(static_cast<std::uint32_t>(value.number(2)));
  }
  return scalars;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (TensorboardFile::is_name(entry.path().filename().string())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("TensorBoard's file has the numbers of metrics.jsonl, step by step") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 200;
  config.train.log_every = 50;
  config.train.eval_every = 200;
  train(config);
  const auto files = files_in(config.train.dir);
  REQUIRE(files.size() == 1);
  const std::vector<Message> events = events_in(files[0]);
  const auto lines = test::metrics_of(config.train.dir);
  REQUIRE(events.size() == 1 + lines.size());
  CHECK(events[0].text(3) == "brain.Event:2");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Message& event = events[i + 1];
    const json& line = lines[i];
    CHECK(event.number(2) == line["step"].get<std::uint64_t>());
    CHECK(std::bit_cast<double>(event.number(1)) > 1.7e9);
    const auto scalars = scalars_of(event);
    CHECK(scalars.at("loss/loss") == line["loss"].get<float>());
    CHECK(scalars.at("optimizer/gradient_norm") == line["gradient_norm"].get<float>());
    CHECK(scalars.at("time/step_ms") == line["step_ms"].get<float>());
    CHECK(scalars.at("memory/total") == line["peak_bytes"]["total"].get<float>());
    CHECK(scalars.contains("loss/val_loss") == line.contains("val_loss"));
    CHECK_FALSE(scalars.contains("speed/mfu"));  // null
  }
}

TEST_CASE("the loads of experts have a curve for each layer") {
  const json line = {{"loss", 1.5},
                     {"peak_bytes", {{"total", 3}}},
                     {"expert_load", {1.5, 2.5}},
                     {"group_learning_rates", {{"tables", 0.5}}}};
  const TensorboardFile::Scalars scalars = tensorboard_scalars(line);
  const std::map<std::string, double> found(scalars.begin(), scalars.end());
  CHECK(found == std::map<std::string, double>{{"loss/loss", 1.5},
                                               {"memory/total", 3.0},
                                               {"optimizer/learning_rate/tables", 0.5},
                                               {"experts/layer_0", 1.5},
                                               {"experts/layer_1", 2.5}});
}

TEST_CASE("a text is a tensor of one string for the plugin of texts") {
  const TemporaryDirectory folder;
  TensorboardFile(folder.path(), 0).add_text(300, "sample", "To be");
  const std::vector<Message> events = events_in(files_in(folder.path())[0]);
  REQUIRE(events.size() == 2);
  CHECK(events[1].number(2) == 300);
  const Message value(Message(events[1].text(5)).text(1));
  CHECK(value.text(1) == "sample");
  const Message tensor(value.text(8));
  CHECK(tensor.number(1) == 7);  // DT_STRING
  CHECK(tensor.text(8) == "To be");
  CHECK(Message(Message(tensor.text(2)).text(2)).number(1) == 1);
  CHECK(Message(Message(value.text(9)).text(1)).text(1) == "text");
}

TEST_CASE("a run that continues tells TensorBoard the step that comes again") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 4;
  config.train.checkpoint_every = 4;
  train(config);
  config.train.steps = 6;
  train(config);
  auto files = files_in(config.train.dir);
  REQUIRE(files.size() == 2);
  const std::vector<Message> events = events_in(files[1]);
  REQUIRE(events.size() == 4);
  CHECK(events[1].number(2) == 5);
  CHECK(Message(events[1].text(7)).number(1) == 1);  // SessionLog.START
  CHECK(events[2].number(2) == 5);
  config.train.resume = "never";
  train(config);
  CHECK(files_in(config.train.dir).size() == 1);
}

}  // namespace tessera
