// tessera eval: the loss of the run, bits per byte, and multiple-choice questions in llm.c's format.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/tokenizers/tokenizer.h"
#include "tests/tools/question_file.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/config/parse.h"
#include "tools/data/prepare.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/hellaswag.h"
#include "tools/eval/question.h"
#include "tools/generate/score.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;
using test::question_file;
using test::TemporaryDirectory;

const std::vector<Question> kQuestions = {
    {.context = {1, 2, 3}, .endings = {{4, 5}, {6}, {7, 8, 9}, {1}}, .label = 2},
    {.context = {5}, .endings = {{1}, {2}, {3}, {10, 10, 10, 10}}, .label = 0},
};

}  // namespace

TEST_CASE("eval: the validation loss is that of the run, on any number of ranks") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 20;
  config.train.eval_every = 20;
  config.train.eval_batches = 0;
  config.sharding.strategy = StrategyKind::fsdp;
  config.runtime.ranks = 2;
  config.runtime.threads = 1;
  train(config);
  const double of_run = test::metrics_of(config.train.dir).back()["val_loss"].get<double>();
  const Evaluation one = evaluate({{.model = config.train.dir, .device = "cpu", .threads = 2}});
  const Evaluation two = evaluate({{.model = config.train.dir, .device = "cpu", .ranks = 2}});
  CHECK(one.all_sources().mean() == Approx(of_run).epsilon(1e-6));
  CHECK(two.all_sources().mean() == one.all_sources().mean());
  CHECK(one.sequence_length == 24);
  // A token of the tiny run is a character of one byte.
  const SourceLoss all = one.all_sources();
  CHECK(*all.bits_per_byte() == Approx(all.mean() / std::log(2.0)).epsilon(1e-12));
  const test::Outcome outcome = test::run({"eval", "--model", config.train.dir.string(), "--device",
                                           "cpu", "--sequence-length", "12", "--json"});
  CHECK(outcome.status == 0);
  const json shorter = json::parse(outcome.out);
  CHECK(shorter["sequences"].get<std::int64_t>() >= 2 * all.sequences);
  CHECK(shorter["val_loss"].get<double>() != all.mean());
  CHECK(shorter["hellaswag"].is_null());
}

TEST_CASE("eval: bits per byte count the text of the targets, and not the first token's") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  // A character of two bytes is the first token, and no target.
  write_file_atomically(folder / "text.txt", "\u00e9" + test::counting_text());
  prepare({.inputs = {folder / "text.txt"},
           .tokenizer = "chars",
           .out = folder / "data",
           .val_fraction = 0.1});
  config.train.steps = 1;
  config.train.eval_every = 0;
  config.data.val = config.data.train.first();
  train(config);
  const SourceLoss found =
      evaluate({{.model = config.train.dir, .device = "cpu", .threads = 2}}).all_sources();
  CHECK(*found.bits_per_byte() == Approx(found.mean() / std::log(2.0)).epsilon(1e-12));
}

TEST_CASE("eval: rows of documents are those of the run, or as they are asked for") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 20;
  config.train.log_every = 0;
  config.train.eval_every = 20;
  config.train.eval_batches = 0;
  config.runtime.threads = 1;
  config.data.document_token = "5";  // a number of the vocabulary
  for (const RowKind rows : {RowKind::windows, RowKind::packed, RowKind::padded}) {
    CAPTURE(enum_name(rows));
    config.data.rows = rows;
    config.train.dir = folder / std::string(enum_name(rows));
    train(config);
    const double of_run = test::metrics_of(config.train.dir).back()["val_loss"].get<double>();
    const SourceLoss own =
        evaluate({{.model = config.train.dir, .device = "cpu", .threads = 1}}).all_sources();
    CHECK(own.mean() == Approx(of_run).epsilon(1e-6));
    CHECK(own.bits_per_byte().has_value() == (rows == RowKind::windows));
    // The model's folder alone, without the run, knows none of it.
    const std::filesystem::path alone = folder / (config.train.dir.filename().string() + "_model");
    std::filesystem::copy(config.train.dir / "model", alone);
    const std::vector<std::string> base = {
        "eval",   "--model", alone.string(),           "--device",          "cpu",
        "--json", "--data",  config.data.val.string(), "--sequence-length", "24"};
    const auto asked = [&](std::vector<std::string> more) {
      more.insert(more.begin(), base.begin(), base.end());
      const test::Outcome outcome = test::run(more);
      INFO(outcome.err);
      REQUIRE(outcome.status == 0);
      return json::parse(outcome.out)["val_loss"].get<double>();
    };
    CHECK(asked({"--rows", std::string(enum_name(rows)), "--document-token", "5"}) == own.mean());
    CHECK(asked({}) != own.mean());
  }
  const test::Outcome bad = test::run(
      {"eval", "--model", config.train.dir.string(), "--device", "cpu", "--document-token", "1 2"});
  CHECK_THAT(bad.err, Contains("the document token \"1 2\", which is 3 tokens; expected one"));
}

TEST_CASE("eval: a question's file reads back, and each kind of damage is named") {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "q.bin";
  const std::string good = question_file(kQuestions);
  write_file_atomically(path, good);
  const auto read = read_questions(path, 11);
  REQUIRE(read.size() == 2);
  CHECK(read[0].context == kQuestions[0].context);
  CHECK(read[0].endings == kQuestions[0].endings);
  CHECK(read[1].label == 0);
  const auto fails = [&](std::size_t at, int value, const std::string& message) {
    CAPTURE(at, message);
    std::string bytes = good;
    bytes[at] = static_cast<char>(value);
    write_file_atomically(path, bytes);
    CHECK_THROWS_WITH(read_questions(path, 11), Contains("q.bin") && Contains(message));
  };
  fails(0, 1, "magic number");
  fails(4, 2, "version 2");
  fails(8, 3, "question 2: it does not begin");
  fails(8, 1, "follow the last of 1");
  fails(1024, 1, "question 0: it does not begin");
  fails(1026, 7, "question 0: 7 bytes");
  fails(1026, 200, "question 0: 200 bytes where");
  fails(1028, 9, "its index is 9");
  fails(1030, 4, "label 4 of 4");
  fails(1032, 1, "of 1 endings");
  fails(1034, 0, "0 tokens");
  fails(1034, 250, "250 tokens where");
  fails(1036, 11, "token 11 is outside the model's vocabulary of 11");
  write_file_atomically(path, good.substr(0, good.size() - 2));
  CHECK_THROWS_WITH(read_questions(path, 11), Contains("question 1"));
  write_file_atomically(path, good.substr(0, 100));
  CHECK_THROWS_WITH(read_questions(path, 11), Contains("100 bytes are no file of questions"));
}

TEST_CASE("eval: the answer has the largest mean log-probability over its own tokens") {
  const QuestionRows rows = rows_of(kQuestions[0], 24);
  CHECK(rows.rows == 4);
  CHECK(rows.length == 5);
  CHECK(rows.inputs ==
        std::vector<std::int32_t>{1, 2, 3, 4, 5, 1, 2, 3, 6, 0, 1, 2, 3, 7, 8, 1, 2, 3, 1, 0});
  CHECK(rows.scored[0] == std::pair<std::int64_t, std::int64_t>(2, 4));
  CHECK(rows.scored[2] == std::pair<std::int64_t, std::int64_t>(2, 5));
  const auto answer = [&](const std::vector<float>& values) {
    return likeliest(log_likelihoods(rows, values), {2, 1, 3, 1});
  };
  // The sums are -2, -1.5, -3 and -9; the means -1, -1.5, -1 and -9. The first of equals counts.
  std::vector<float> values(20, -50.0f);
  values[2] = values[3] = -1.0f;
  values[7] = -1.5f;
  values[12] = values[13] = values[14] = -1.0f;
  values[17] = -9.0f;
  CHECK(answer(values) == 0);
  values[13] = -0.5f;
  CHECK(answer(values) == 2);
  // A context that is too long keeps its end, as much as fits with the ending.
  const QuestionRows cut = rows_of(kQuestions[0], 3);
  CHECK(cut.length == 3);
  CHECK(cut.inputs == std::vector<std::int32_t>{2, 3, 4, 1, 2, 3, 3, 7, 8, 1, 2, 3});
  CHECK(cut.targets == std::vector<std::int32_t>{3, 4, 5, 2, 3, 6, 7, 8, 9, 2, 3, 1});
  CHECK(cut.scored[2] == std::pair<std::int64_t, std::int64_t>(0, 3));
  CHECK_THROWS_WITH(rows_of(kQuestions[0], 2), Contains("an ending of 3 tokens"));
}

TEST_CASE("eval: a model that has learned to count chooses the next number") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 150;
  config.train.log_every = 0;
  config.data.val.clear();
  train(config);
  // Characters are "0" to "9" and " " in some order; the text itself gives ids.
  const auto ids = [&](const std::string& piece) {
    const auto tokenizer = Tokenizer::load(config.train.dir / "model");
    return tokenizer->encode(piece);
  };
  // After "3 1" comes a digit; spaces in a row never do.
  std::vector<Question> questions;
  for (std::size_t label = 0; label < 4; ++label) {
    Question question = {.context = ids("30 31 32 33 3"), .label = label};
    for (std::size_t i = 0; i < 4; ++i) {
      question.endings.push_back(ids(i == label ? "4 35 " : "   "));
    }
    questions.push_back(question);
  }
  write_file_atomically(folder / "q.bin", question_file(questions));
  const test::Outcome outcome = test::run({"eval", "--model", config.train.dir.string(), "--device",
                                           "cpu", "--hellaswag", folder / "q.bin"});
  CHECK(outcome.status == 0);
  CHECK(outcome.out == "right answers 1.0000: 4 of 4 questions\n");
  const test::Outcome nothing = test::run({"eval", "--model", config.train.dir.string()});
  CHECK(nothing.status == 1);
  CHECK_THAT(nothing.err, Contains("give --data, --task or --hellaswag"));
}

}  // namespace tessera
