#include "runtime/safetensors.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

std::string little_endian(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\1');
}

/// The reader's message about a file of these bytes; empty if the file is valid.
std::string verdict(const std::string& contents) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "hostile.safetensors";
  std::ofstream(path, std::ios::binary) << contents;  // no need to reach the disk
  try {
    const SafetensorsFile file(path);
    return "";
  } catch (const Error& error) {
    const std::string message = error.what();
    REQUIRE_THAT(message, Contains(path.string()));
    REQUIRE_THAT(message, !Contains("\n"));
    return message;
  }
}

std::string verdict(const std::string& header, std::size_t data_bytes) {
  return verdict(file_of(header, data_bytes));
}

/// The verdict on one tensor of 8 bytes with this entry.
std::string verdict_on_entry(const std::string& entry) {
  return verdict("{\"weight\":" + entry + "}", 8);
}

}  // namespace

TEST_CASE("tensors of every dtype survive a round trip, with names, order and metadata") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const NamedTensors tensors = {
      {"f32", test::normal_tensor({3, 5}, DType::f32, "a")},
      {"bf16", test::normal_tensor({2, 2, 2}, DType::bf16, "b")},
      {"f16", test::normal_tensor({4}, DType::f16, "c")},
      {"f64", test::normal_tensor({}, DType::f64, "d")},
      {"i32", test::index_tensor({7}, 1000, "e")},
      {"i64", Tensor::from(std::vector<std::int64_t>{-1, INT64_MAX}, {2, 1})},
      {"u8", Tensor::from(std::vector<std::uint8_t>{0, 1, 255}, {3})},
      {"empty", Tensor::empty({0, 4}, DType::f32)},
      {"after odd bytes", test::normal_tensor({3}, DType::f64, "f")},
      {"quote\" backslash\\ line\n \xc3\xa9", test::normal_tensor({1}, DType::f32, "g")},
  };
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"a \"b\"", "c\\d\n"}};
  write_safetensors(folder / "file", tensors, metadata);

  const SafetensorsFile file(folder / "file");
  REQUIRE(file.metadata() == metadata);
  REQUIRE(file.tensors().size() == tensors.size());
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    REQUIRE(file.contains(name));
    REQUIRE(test::same_bits(file.tensor(name), tensor));
    REQUIRE(file.tensors().at(name).begin == offset);
    offset += tensor.bytes();
  }
}

TEST_CASE("a file without tensors survives a round trip") {
  const test::TemporaryDirectory folder;
  write_safetensors(folder / "file", {});
  REQUIRE(SafetensorsFile(folder / "file").tensors().empty());
  REQUIRE(SafetensorsFile(folder / "file").metadata().empty());
}

TEST_CASE("the written data section starts at a multiple of 8 bytes") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  for (const std::string name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg"}) {
    write_safetensors(folder / "file", {{name, Tensor::zeros({1}, DType::f64)}});
    const std::string text = read_text_file(folder / "file");
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof(length));
    REQUIRE(length % 8 == 0);
    REQUIRE(text.size() == 8 + length + 8);
    const auto header = nlohmann::json::parse(text.substr(8, length));
    REQUIRE(header.at(name).at("data_offsets") == nlohmann::json({0, 8}));
    REQUIRE(header.at(name).at("shape") == nlohmann::json({1}));
    REQUIRE(header.at(name).at("dtype") == "F64");
  }
}

// Written by the Python library: tests/golden/make_safetensors.py.
TEST_CASE("a file of the reference implementation is read with its values") {
  const test::Rank rank;
  const SafetensorsFile file(fs::path(TESSERA_SOURCE_DIR) /
                             "tests/golden/safetensors/python.safetensors");
  REQUIRE(file.metadata() == std::map<std::string, std::string>{{"format", "np"}, {"k\"ey", "é"}});
  REQUIRE(file.tensors().size() == 7);
  REQUIRE(file.tensor("f32").shape() == Shape{2, 3});
  REQUIRE(file.tensor("f32").to_vector<float>() ==
          std::vector<float>{0.0f, 0.25f, 0.5f, 0.75f, 1.0f, 1.25f});
  REQUIRE(test::to_doubles(file.tensor("f16")) == std::vector<double>{1.5, -2.0, 65504.0});
  REQUIRE(file.tensor("f64").item<double>() == 0.1);
  REQUIRE(file.tensor("f64").shape() == Shape{});
  REQUIRE(file.tensor("i32").to_vector<std::int32_t>() == std::vector<std::int32_t>{-7, 7});
  REQUIRE(file.tensor("i64").to_vector<std::int64_t>() ==
          std::vector<std::int64_t>{-(std::int64_t{1} << 40)});
  REQUIRE(file.tensor("u8").to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 2, 255});
  REQUIRE(file.tensor("empty").shape() == Shape{0, 3});
}

TEST_CASE("a tensor is a window on the mapped file and keeps it alive") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const Tensor written = test::normal_tensor({8, 4}, DType::f32, "w");
  write_safetensors(folder / "file", {{"w", written}});
  const std::int64_t live = context().allocator().account().total.current;
  Tensor tensor;
  {
    const SafetensorsFile file(folder / "file");
    tensor = file.tensor("w");
    REQUIRE(file.tensor("w").raw() == tensor.raw());
  }
  fs::remove(folder / "file");
  REQUIRE(context().allocator().account().total.current == live);
  REQUIRE(test::same_bits(tensor, written));
  REQUIRE(test::same_bits(tensor.slice(2, 5), written.slice(2, 5)));
}

TEST_CASE("misaligned data is copied to where it can be read") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const Tensor doubles = test::normal_tensor({5}, DType::f64, "w");
  const Tensor bytes = Tensor::from(std::vector<std::uint8_t>{1, 2, 3}, {3});
  write_safetensors(folder / "file", {{"bytes", bytes}, {"doubles", doubles}});
  const SafetensorsFile file(folder / "file");
  REQUIRE(file.tensors().at("doubles").begin == 3);
  const Tensor read = file.tensor("doubles");
  REQUIRE(reinterpret_cast<std::uintptr_t>(read.raw()) % 8 == 0);
  REQUIRE(test::same_bits(read, doubles));
}

TEST_CASE("an unknown tensor is an error that names file and tensor") {
  const test::TemporaryDirectory folder;
  write_safetensors(folder / "file", {});
  const SafetensorsFile file(folder / "file");
  REQUIRE_FALSE(file.contains("wte"));
  REQUIRE_THROWS_WITH(file.tensor("wte"), Contains((folder / "file").string()) && Contains("wte"));
}

TEST_CASE("the writer refuses names that no reader accepts, and keeps the old file") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  const Tensor one = Tensor::zeros({1}, DType::f32);
  write_safetensors(folder / "file", {{"old", one}});
  REQUIRE_THROWS_WITH(write_safetensors(folder / "file", {{"w", one}, {"v", one}, {"w", one}}),
                      Contains("\"w\"") && Contains("twice"));
  REQUIRE_THROWS_WITH(write_safetensors(folder / "file", {{"__metadata__", one}}),
                      Contains("reserved"));
  REQUIRE_THROWS_WITH(write_safetensors(folder / "file", {{"w", Tensor()}}), Contains("\"w\""));
  REQUIRE_THROWS_WITH(write_safetensors(folder / "file", {{"\xff", one}}), Contains("UTF-8"));
  REQUIRE_THROWS_WITH(write_safetensors(folder / "none" / "file", {{"w", one}}),
                      Contains((folder / "none" / "file").string()));
  REQUIRE(SafetensorsFile(folder / "file").contains("old"));
}

TEST_CASE("a valid small header is read") {
  REQUIRE(verdict_on_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})") == "");
  REQUIRE(verdict_on_entry(R"({"dtype":"F64","shape":[],"data_offsets":[0,8]})") == "");
  REQUIRE(verdict("{}", 0) == "");
  REQUIRE(verdict("{}     ", 0) == "");
  REQUIRE(verdict(R"({"__metadata__":{"a":"b"}})", 0) == "");
  // Empty tensors share their offset with the next tensor.
  REQUIRE(verdict(R"({"z":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                  R"("a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"F64","shape":[9,0],"data_offsets":[8,8]}})",
                  8) == "");
}

TEST_CASE("hostile: the file is too short or its length field lies") {
  REQUIRE_THAT(verdict(""), Contains("0 bytes"));
  REQUIRE_THAT(verdict("1234567"), Contains("7 bytes"));
  REQUIRE_THAT(verdict(little_endian(3) + "{}"), Contains("does not fit"));
  REQUIRE_THAT(verdict(little_endian(std::uint64_t{1} << 63) + "{}"), Contains("header"));
  REQUIRE_THAT(verdict(little_endian(~std::uint64_t{0}) + "{}"), Contains("header"));
  REQUIRE_THAT(verdict(little_endian(~std::uint64_t{0} - 7) + "{}"), Contains("header"));
  REQUIRE_THAT(verdict(little_endian(100'000'001) + "{}"), Contains("100000000"));
}

TEST_CASE("hostile: the header is not a JSON object") {
  REQUIRE_THAT(verdict("", 0), Contains("not a JSON object"));
  REQUIRE_THAT(verdict("[]", 0), Contains("not a JSON object"));
  REQUIRE_THAT(verdict(" {}", 0), Contains("not a JSON object"));
  REQUIRE_THAT(verdict("{\"weight\":", 0), Contains("not JSON"));
  REQUIRE_THAT(verdict("{} {}", 0), Contains("not JSON"));
  REQUIRE_THAT(verdict(std::string("{}\0\0", 4), 0), Contains("not JSON"));
  REQUIRE_THAT(verdict("{\"\xff\xfe\":1}", 0), Contains("not JSON"));
}

TEST_CASE("hostile: deep nesting is refused while it is parsed") {
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string header = "{\"a\":";
    for (int i = 0; i < 1'000'000; ++i) header += open;
    REQUIRE_THAT(verdict(header, 0), Contains("nested"));
  }
}

TEST_CASE("hostile: a key is given twice") {
  const std::string entry = R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})";
  REQUIRE_THAT(verdict(R"({"w":)" + entry + R"(,"w":)" + entry + "}", 8), Contains("\"w\" twice"));
  REQUIRE_THAT(verdict(R"({"w":)" + entry + R"(,"\u0077":)" + entry + "}", 8),
               Contains("\"w\" twice"));
  REQUIRE_THAT(verdict_on_entry(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8],"shape":[1]})"),
               Contains("\"shape\" twice"));
}

TEST_CASE("hostile: fields are missing or have the wrong type") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"shape":[2],"data_offsets":[0,8]})", "no 'dtype'"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "no 'shape'"},
      {R"({"dtype":"F32","shape":[2]})", "no 'data_offsets'"},
      {R"(null)", "not a JSON object"},
      {R"([1,2])", "not a JSON object"},
      {R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", "'dtype' is not a string"},
      {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "'shape' is not a list"},
      {R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", "'shape' is not a list"},
      {R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", "nested"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":"0,8"})", "'data_offsets' is not a list"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "1 numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})", "3 numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", "'data_offsets' is not a list"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})", "'data_offsets' is not a list"},
      {R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})", "unknown dtype 'f32'"},
      {R"({"dtype":"F8_E8M0","shape":[8],"data_offsets":[0,8]})", "unknown dtype 'F8_E8M0'"},
  };
  for (const auto& [entry, reason] : cases) {
    INFO(entry);
    const std::string message = verdict_on_entry(entry);
    REQUIRE_THAT(message, Contains(reason));
    if (reason != "nested") REQUIRE_THAT(message, Contains("tensor \"weight\""));
  }
}

TEST_CASE("hostile: shapes that are negative, fractional, too large or too long") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[-2]", "'shape' is not a list"},
      {"[2.0]", "'shape' is not a list"},
      {"[1e0]", "'shape' is not a list"},
      {"[18446744073709551616]", "'shape' is not a list"},  // 2^64
      {"[9223372036854775808]", "too large"},               // 2^63
      {"[4294967296,4294967296]", "more elements than 64 bits"},
      {"[4611686018427387904]", "does not fill"},  // 2^62 elements, 2^64 bytes: 0 if wrapped
      {"[4611686018427387906]", "does not fill"},  // 8 bytes if wrapped
      {"[1,1,1,1,1,1,2]", "at most 6"},
  };
  for (const auto& [shape, reason] : cases) {
    INFO(shape);
    REQUIRE_THAT(
        verdict_on_entry(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,8]})"),
        Contains(reason) && Contains("tensor \"weight\""));
  }
}

TEST_CASE("hostile: offsets outside the file, reversed, or of another length than the shape") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[0,16]", "data section of 8"},
      {"[8,16]", "data section of 8"},
      {"[18446744073709551608,18446744073709551615]", "data section of 8"},
      {"[18446744073709551612,4]", "ends before"},
      {"[8,0]", "ends before"},
      {"[0,4]", "does not fill its 4 bytes"},
      {"[0,0]", "does not fill its 0 bytes"},
  };
  for (const auto& [offsets, reason] : cases) {
    INFO(offsets);
    REQUIRE_THAT(verdict_on_entry(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}"),
                 Contains(reason) && Contains("tensor \"weight\""));
  }
}

TEST_CASE("hostile: tensors overlap or leave bytes unused") {
  const auto pair = [](const std::string& first, const std::string& second, int data_bytes) {
    return verdict(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                   static_cast<std::size_t>(data_bytes));
  };
  REQUIRE(pair("[0,4]", "[4,8]", 8) == "");
  REQUIRE(pair("[4,8]", "[0,4]", 8) == "");
  REQUIRE_THAT(pair("[0,4]", "[0,4]", 4), Contains("overlaps") && Contains("tensor \"b\""));
  REQUIRE_THAT(pair("[0,4]", "[3,7]", 7), Contains("overlaps") && Contains("tensor \"b\""));
  REQUIRE_THAT(pair("[5,9]", "[0,4]", 9), Contains("belong to no tensor") && Contains("\"a\""));
  REQUIRE_THAT(pair("[1,5]", "[5,9]", 9), Contains("belong to no tensor") && Contains("\"a\""));
  REQUIRE_THAT(pair("[0,4]", "[4,8]", 9), Contains("last 1 bytes"));
  REQUIRE_THAT(verdict("{}", 3), Contains("last 3 bytes"));
  REQUIRE_THAT(verdict(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                       R"("inside":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                       4),
               Contains("overlaps") && Contains("tensor \"inside\""));
}

TEST_CASE("hostile: metadata is not a map of strings") {
  for (const std::string metadata : {"1", "[]", "\"text\"", "{\"a\":1}", "{\"a\":null}"}) {
    INFO(metadata);
    REQUIRE_THAT(verdict("{\"__metadata__\":" + metadata + "}", 0),
                 Contains("__metadata__") && Contains("not all strings"));
  }
  REQUIRE_THAT(verdict(R"({"__metadata__":{"a":{"b":{"c":1}}}})", 0), Contains("nested"));
}

TEST_CASE("hostile: a name with a line break does not break the message") {
  REQUIRE_THAT(verdict(R"({"two\nlines":{}})", 0), Contains("tensor \"two\\nlines\""));
  REQUIRE_THAT(verdict(R"({"two\nlines":1,"two\nlines":1})", 0), Contains("twice"));
}

TEST_CASE("hostile: every truncation of a valid file is refused") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  write_safetensors(folder / "file", {{"w", test::normal_tensor({3}, DType::f32, "w")}});
  const std::string whole = read_text_file(folder / "file");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    REQUIRE(verdict(whole.substr(0, length)) != "");
  }
}

}  // namespace tessera
