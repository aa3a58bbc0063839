// Samples for fine-tuning, from .jsonl files to the targets of a batch.
#include "tools/data/samples.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cross_entropy/op.h"
#include "models/language_model.h"
#include "models/tokenizers/bytes.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/prepared_files.h"
#include "tools/data/loader.h"
#include "tools/data/manifest.h"
#include "tools/data/marked_token.h"
#include "tools/data/prepare.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::write_text;
namespace fs = std::filesystem;

const fs::path kGolden = TESSERA_SOURCE_DIR "/tests/golden";

std::string text_of(const std::vector<std::int32_t>& tokens, const Tokenizer& tokenizer,
                    bool trained) {
  std::vector<std::int32_t> chosen;
  for (const std::int32_t marked : tokens) {
    const auto token = static_cast<TokenId>(marked);
    if (((marks_of(token) & kTrained) != 0) == trained) {
      chosen.push_back(static_cast<std::int32_t>(without_marks(token)));
    }
  }
  return tokenizer.decode(chosen);
}

/// A folder with the tokenizer of a golden folder and the chat template of a golden case.
void write_tokenizer(const fs::path& folder, const std::string& tokenizer,
                     const std::string& chat) {
  fs::create_directories(folder);
  fs::copy_file(kGolden / "tokenizers" / tokenizer / "tokenizer.json", folder / "tokenizer.json");
  const nlohmann::json cases = read_json_file(kGolden / "chat/cases.json");
  for (const nlohmann::json& one : cases["templates"]) {
    if (one["name"] != chat) continue;
    write_file_atomically(folder / "tokenizer_config.json",
                          nlohmann::json{{"chat_template", one["template"]},
                                         {"bos_token", one["bos"]},
                                         {"eos_token", one["eos"]}}
                              .dump());
  }
}

/// Two samples: 10 bytes of which the last 4 are trained, and 6 of which 3 are.
constexpr const char* kTwo =
    "{\"prompt\": \"abcdef\", \"completion\": \"WXYZ\"}\n\n"
    "{\"completion\": \"UVW\", \"prompt\": \"abc\"}\n";

Manifest prepare_samples(const fs::path& folder, std::string_view lines,
                         const std::string& tokenizer = "bytes") {
  return prepare({.inputs = {write_text(folder / "a.jsonl", lines)},
                  .tokenizer = tokenizer,
                  .out = folder / "out",
                  .val_fraction = 0.0,
                  .answers_only = true});
}

std::string marks_in(const fs::path& path) {
  std::string marks;
  for (const char mark : read_text_file(path).substr(MarkFile::kHeaderBytes)) {
    marks.push_back(static_cast<char>('0' + mark));
  }
  return marks;
}

}  // namespace

TEST_CASE("the tokens of an answer are trained, and no other") {
  const ByteTokenizer bytes;
  const Sample sample{.chosen = {.text = "abXYcdZ", .answers = {{2, 4}, {6, 7}}}, .place = "a"};
  const std::vector<std::int32_t> tokens = encode_sample(sample, bytes, {});
  std::string marks;
  for (const std::int32_t token : tokens) {
    marks.push_back(static_cast<char>('0' + marks_of(static_cast<TokenId>(token))));
  }
  CHECK(marks == "2011001");
  CHECK(text_of(tokens, bytes, false) == "abcd");
  const auto ended =
      encode_sample({.chosen = {.text = "ab", .answers = {{1, 2}}, .ends_text = true}}, bytes, 7);
  REQUIRE(ended.size() == 3);
  CHECK(static_cast<TokenId>(ended[2]) == with_marks(7, kTrained));
  for (const SampleText& text :
       {SampleText{.text = "ab", .answers = {}}, SampleText{.text = "ab", .answers = {{1, 1}}},
        SampleText{.text = "a", .answers = {{0, 1}}}, SampleText{.text = "", .answers = {}}}) {
    const Sample bad{.chosen = text, .place = "x:3"};
    CHECK_THROWS_WITH(encode_sample(bad, bytes, {}),
                      Catch::StartsWith("x:3: no token of this sample would be trained"));
  }
}

TEST_CASE("the answers of a conversation are the trained text, by every tokenizer") {
  const auto [tokenizer, chat, end] =
      GENERATE(table<std::string, std::string, std::string>({{"llama2", "llama2", " </s>"},
                                                             {"llama4", "llama4", "<|eot|>"},
                                                             {"llama4", "llama3", "<|eot_id|>"},
                                                             {"llama4", "qwen3", "<|im_end|>"}}));
  const test::TemporaryDirectory folder;
  write_tokenizer(folder / "t", tokenizer, chat);
  const auto tokens_of = Tokenizer::load(folder / "t");
  const nlohmann::json line = {{"messages",
                                {{{"role", "user"}, {"content", "What is 2 + 2?"}},
                                 {{"role", "assistant"}, {"content", "Four, 4."}},
                                 {{"role", "user"}, {"content", "And 3 + 3?"}},
                                 {{"role", "assistant"}, {"content", "Six"}}}}};
  write_text(folder / "a.jsonl", line.dump());
  int samples = 0;
  InputStream stream(folder / "a.jsonl");
  SampleReader((folder / "t").string()).read(stream, [&](const Sample& sample) {
    ++samples;
    CHECK(sample.place == (folder / "a.jsonl").string() + ":1");
    const std::string trained = text_of(encode_sample(sample, *tokens_of, {}), *tokens_of, true);
    std::string expected;
    for (const auto& [begin, last] : sample.chosen.answers) {
      expected += sample.chosen.text.substr(begin, last - begin);
    }
    CHECK_THAT(expected, Contains("Four, 4." + end) && Catch::EndsWith("Six" + end));
    CHECK_THAT(trained, Contains("Four, 4.") && Contains("Six") && !Contains("2 + 2") &&
                            !Contains("user") && !Contains("assistant"));
  });
  CHECK(samples == 1);
}

TEST_CASE("prepare writes a mark file next to each token file, and the manifest lists it") {
  const test::TemporaryDirectory folder;
  const Manifest manifest = prepare_samples(folder.path(), kTwo);
  CHECK(test::texts_in(folder / "out").first == "abcdefWXYZabcUVW");
  CHECK(marks_in(folder / "out/train.marks") == "2000001111200111");
  CHECK(manifest.train_tokens == 16);
  REQUIRE(manifest.outputs.size() == 4);
  CHECK(manifest.outputs[1].path == "train.marks");
  CHECK(manifest.outputs[1].bytes == 1024 + 16);
  CHECK_NOTHROW(TokenCorpus::open(folder / "out/train.bin", 256));
  // Other data in the same folder must not be read with these marks.
  prepare({.inputs = {write_text(folder / "a.txt", "plain")},
           .tokenizer = "bytes",
           .out = folder / "out"});
  CHECK(test::names_in(folder / "out") == test::kAllFiles);
}

TEST_CASE("a completion ends with the end-of-text token, and samples are split as documents") {
  const test::TemporaryDirectory folder;
  std::string lines;
  for (int i = 0; i < 4; ++i) lines += "{\"prompt\": \"Hello, \", \"completion\": \"world\"}\n";
  const std::string tokenizer = (kGolden / "tokenizers/llama4").string();
  const Manifest manifest = prepare({.inputs = {write_text(folder / "a.jsonl", lines)},
                                     .tokenizer = tokenizer,
                                     .out = folder / "out",
                                     .val_fraction = 0.25,
                                     .answers_only = true});
  CHECK(manifest.train_tokens == 3 * manifest.val_tokens);
  const auto tokens = test::tokens_in(folder / "out/val.bin");
  CHECK(tokens.back() ==
        static_cast<TokenId>(Tokenizer::load(tokenizer)->encode("<|end_of_text|>").at(0)));
  const std::string marks = marks_in(folder / "out/val.marks");
  CHECK(marks.front() == '2');
  CHECK(marks.substr(marks.size() - 2) == "11");
}

TEST_CASE("batches of samples have the answers as their only valid targets") {
  const test::Rank rank;
  const test::TemporaryDirectory folder;
  prepare_samples(folder.path(), kTwo);
  const TokenCorpus corpus = TokenCorpus::open(folder / "out/train.bin", 256);
  for (const RowKind kind : {RowKind::windows, RowKind::packed, RowKind::padded}) {
    CAPTURE(enum_name(kind));
    const TokenLoader loader(corpus, kind == RowKind::windows ? 5 : 16, SampleOrder::sequential, 0,
                             {}, kind);
    const std::int64_t rows = loader.samples();
    const Batch batch = loader.load(0, 0, rows, rows);
    std::string valid;
    for (const std::int32_t target : batch.targets.to_vector<std::int32_t>()) {
      if (target != kIgnoreIndex) valid.push_back(static_cast<char>(target));
    }
    CHECK(valid == "WXYZUVW");
    CHECK(loader.loss_terms(0, 0, rows, rows) == 7);
    CHECK(rows == (kind == RowKind::windows ? 3 : kind == RowKind::packed ? 1 : 2));
    CHECK(batch.document_starts.defined() == (kind == RowKind::packed));
  }
  // "abcd" predicts nothing that is trained, and is left out: "efWX", "YZ", "abcU" and "V" remain.
  const TokenLoader cut(corpus, 4, SampleOrder::sequential, 0, {}, RowKind::padded);
  CHECK(cut.samples() == 4);
}

TEST_CASE("lines that are no samples are refused by their number") {
  const test::TemporaryDirectory folder;
  const auto error_of = [&](const std::string& line, const std::string& tokenizer = "bytes") {
    return test::error_of([&] {
      prepare_samples(folder.path(), "{\"prompt\": \"a\", \"completion\": \"b\"}\n" + line,
                      tokenizer);
    });
  };
  const std::string at = (folder / "a.jsonl").string() + ":2: ";
  const std::pair<const char*, const char*> kBad[] = {
      {"{", "it is not JSON"},
      {"[1]", "a value is of type array; expected an object"},
      {"{\"text\": \"a\"}", "this one has none of them"},
      {"{\"prompt\": \"a\"}", "completion is missing"},
      {"{\"prompt\": 1, \"completion\": \"a\"}", "prompt is 1; expected text"},
      {"{\"prompt\": \"a\", \"completion\": \"\"}", "no token of this sample would be trained"},
      {"{\"prompt\": \"\", \"completion\": \"x\"}", "no token of this sample would be trained"},
      {"{\"messages\": 3}", "messages is 3; expected a list"},
      {"{\"messages\": [3]}", "messages[0] is 3; expected an object"},
      {"{\"messages\": [{\"role\": \"user\"}]}", "content is missing"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
       "messages need a tokenizer with a chat template, and 'bytes' has none"}};
  for (const auto& [line, message] : kBad) {
    CAPTURE(line);
    CHECK_THAT(error_of(line), Catch::StartsWith(at) && Contains(message));
  }
  write_tokenizer(folder / "t", "llama4", "llama4");
  const std::string chat = (folder / "t").string();
  CHECK_THAT(error_of("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", chat),
             Catch::StartsWith(at + "no token of this sample would be trained"));
  CHECK_THAT(error_of("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", chat),
             Catch::StartsWith(at + "the role of a message is \"tool\""));
  CHECK_THAT(error_of("{\"messages\": []}", chat),
             Catch::StartsWith(at + "a conversation needs at least one message"));
  PrepareOptions options{.inputs = {write_text(folder / "b.txt", "x")},
                         .tokenizer = "bytes",
                         .out = folder / "out",
                         .answers_only = true};
  CHECK_THROWS_WITH(prepare(options), Contains("b.txt: samples for fine-tuning are lines of a"));
  options.split = ValidationSplit::tails;
  CHECK_THROWS_WITH(prepare(options), Contains("samples cannot be split at their tails"));
}

TEST_CASE("a bad mark file is refused with its path and the reason") {
  const test::TemporaryDirectory folder;
  prepare_samples(folder.path(), kTwo);
  const fs::path path = folder / "out/train.marks";
  const std::string good = read_text_file(path);
  fs::remove(folder / "out/manifest.json");
  const auto open_with = [&](std::string bytes) {
    write_text(path, bytes);
    TokenCorpus::open(folder / "out/train.bin", 256);
  };
  const auto changed = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return bytes;
  };
  CHECK_NOTHROW(open_with(good));
  CHECK_THROWS_WITH(open_with(""), Contains("train.marks: too short for a mark file: 0 bytes"));
  CHECK_THROWS_WITH(open_with(changed(0, 1)), Contains("train.marks: not a mark file: the magic"));
  CHECK_THROWS_WITH(open_with(changed(4, 2)), Contains("the mark file has version 2"));
  CHECK_THROWS_WITH(open_with(changed(8, 15)),
                    Contains("marks of 15 tokens in the header; the token file has 16"));
  CHECK_THROWS_WITH(open_with(good.substr(0, good.size() - 1)),
                    Contains("truncated: marks of 16 tokens in the header, 15 in the file"));
  CHECK_THROWS_WITH(open_with(good + "x"), Contains("too long"));
  CHECK_THROWS_WITH(open_with(changed(1024 + 3, 8)),
                    Contains("train.marks: the marks of token 3 are 8; expected 0 to 7"));
  prepare_samples(folder.path(), kTwo);
  CHECK_THROWS_WITH(open_with(changed(1024 + 3, 1)),
                    Contains("train.marks: the file is damaged: its checksum is "));
  CHECK_THROWS_WITH(open_with(good + "x"), Contains("train.marks: too long"));
  // A set of which only one file has marks.
  open_with(good);
  write_token_file(folder / "plain.bin", std::vector<TokenId>{1, 2});
  CHECK_THROWS_WITH(
      TokenCorpus::open((folder / "out/train.bin").string() + "," + (folder / "plain.bin").string(),
                        256),
      Contains("others such as " + (folder / "plain.bin").string() + " have not"));
}

}  // namespace tessera
