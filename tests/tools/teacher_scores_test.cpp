// tessera score --data against a plain loop over one token at a time.
#include "tools/generate/teacher_scores.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/cross_entropy/op.h"
#include "models/gpt2/model.h"
#include "models/hugging_face.h"
#include "runtime/file.h"
#include "runtime/random.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/run_program.h"
#include "tests/tools/tiny_run.h"
#include "tools/data/mark_file.h"
#include "tools/generate/teacher_records.h"
#include "tools/train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using test::error_of;
using test::TemporaryDirectory;

constexpr std::int64_t kVocabulary = 61, kContext = 8;
constexpr TokenId kStart = 7;
const std::vector<std::int64_t> kLengths = {1, 3, 8, 9, 30, 1, 16, 2};

/// A small GPT-2 with random weights.
fs::path save_model(const TemporaryDirectory& folder, std::int64_t vocab_size = kVocabulary,
                    std::int64_t context = kContext) {
  const test::Rank rank(1);
  const Gpt2 gpt2(
      {.vocab_size = vocab_size, .context = context, .layers = 2, .heads = 2, .width = 16});
  const auto strategy = make_single_strategy(gpt2.units(), 1);
  save_pretrained(folder / "model", gpt2, *strategy);
  return folder / "model";
}

/// Tokens below `vocab_size`. A document of each length starts at kStart.
std::vector<TokenId> documents_of(const std::vector<std::int64_t>& lengths,
                                  std::int64_t vocab_size = kVocabulary) {
  const RandomStream random(3, "documents");
  std::vector<TokenId> tokens;
  for (const std::int64_t length : lengths) {
    tokens.push_back(kStart);
    for (std::int64_t i = 1; i < length; ++i) {
      const auto token =
          static_cast<TokenId>(random.below(tokens.size(), static_cast<std::uint64_t>(vocab_size)));
      tokens.push_back(token == kStart ? 0 : token);
    }
  }
  return tokens;
}

TeacherOptions options_of(const fs::path& model, const fs::path& data, std::int64_t top_k) {
  TeacherOptions options;
  options.model = model;
  options.device = "cpu";
  options.threads = 1;
  options.data = data;
  options.top_k = top_k;
  return options;
}

std::vector<TeacherScores> write(const TeacherOptions& options) {
  std::vector<TeacherScores> all;
  write_teacher_files(options, [&](const TeacherScores& scores) { all.push_back(scores); });
  return all;
}

/// The used places of a token's record.
using Record = std::vector<std::pair<TokenId, float>>;

std::vector<Record> records_in(const fs::path& token_file) {
  const TeacherFile file(teacher_file_of(token_file));
  file.check_tokens(TokenFile(token_file));
  const auto places = static_cast<std::size_t>(file.header().top_k);
  std::vector<TokenId> ids(places * static_cast<std::size_t>(file.header().tokens));
  std::vector<float16> values(ids.size());
  file.read(0, file.header().top_k, {ids, values});
  std::vector<Record> records(ids.size() / places);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (std::isfinite(value)) records[i / places].emplace_back(ids[i], value);
  }
  return records;
}

/// In float64, the log-probabilities of all tokens behind tokens [first, last].
std::vector<double> log_probabilities_after(LanguageModel& model,
                                            const std::vector<TokenId>& tokens, std::int64_t first,
                                            std::int64_t last) {
  const std::vector<std::int32_t> seen(tokens.begin() + first, tokens.begin() + last + 1);
  const auto logits =
      model.logits(Tensor::from(seen, {1, std::ssize(seen)})).data().to_vector<float>();
  std::vector<double> values(logits.end() - model.shape().vocab_size, logits.end());
  double sum = 0.0;
  for (const double value : values) sum += std::exp(value);
  for (double& value : values) value -= std::log(sum);
  return values;
}

/// Half a unit in the last place of f16, and the rounding of f32 logits.
void check_record(const Record& record, const std::vector<double>& expected, std::size_t top_k) {
  std::vector<TokenId> ids(expected.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::ranges::stable_sort(ids, [&](TokenId a, TokenId b) { return expected[a] > expected[b]; });
  REQUIRE(record.size() == top_k);
  for (std::size_t k = 0; k < top_k; ++k) {
    CHECK(record[k].first == ids[k]);
    CHECK(record[k].second == Approx(expected[ids[k]]).epsilon(0x1p-11).margin(1e-5));
  }
}

/// The first token that the model sees before it predicts the one behind place `at` of a document.
std::int64_t window_of(std::int64_t at, std::int64_t length) {
  const std::int64_t half = length / 2;
  return at < length ? 0 : (at - half) / half * half;
}

/// Compares all records with those of documents that begin at these tokens. Returns the mean loss.
double check_documents(const TeacherOptions& options, const std::vector<TokenId>& tokens,
                       std::vector<std::int64_t> begins, std::int64_t length = kContext) {
  const std::vector<Record> records = records_in(options.data);
  REQUIRE(records.size() == tokens.size());
  begins.push_back(std::ssize(tokens));
  double loss = 0.0, count = 0.0;
  run_model(options, [&](LanguageModel& model) {
    for (std::size_t document = 0; document + 1 < begins.size(); ++document) {
      const std::int64_t begin = begins[document], last = begins[document + 1] - 1;
      for (std::int64_t i = begin; i < last; ++i) {
        CAPTURE(document, i);
        const auto expected =
            log_probabilities_after(model, tokens, begin + window_of(i - begin, length), i);
        const auto at = static_cast<std::size_t>(i);
        check_record(records[at], expected, static_cast<std::size_t>(options.top_k));
        loss -= expected[tokens[at + 1]];
        count += 1.0;
      }
      CHECK(records[static_cast<std::size_t>(last)].empty());
    }
  });
  return loss / count;
}

std::vector<std::int64_t> begins_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> begins = {0};
  std::partial_sum(lengths.begin(), lengths.end() - 1, std::back_inserter(begins));
  return begins;
}

struct Files {
  TemporaryDirectory folder;
  fs::path model, data;
  std::vector<TokenId> tokens;

  explicit Files(std::vector<TokenId> own = documents_of(kLengths))
      : model(save_model(folder)), data(folder / "train.bin"), tokens(std::move(own)) {
    write_token_file(data, tokens);
  }
  TeacherOptions options(std::int64_t top_k = 5) const { return options_of(model, data, top_k); }
  std::string bytes() const { return read_text_file(teacher_file_of(data)); }
};

}  // namespace

TEST_CASE(
    "teacher scores: records are a document's likeliest next tokens, by windows that overlap") {
  const Files files;
  TeacherOptions options = files.options();
  options.document_token = std::to_string(kStart);
  const auto scores = write(options);
  const double loss = check_documents(options, files.tokens, begins_of(kLengths));
  REQUIRE(scores.size() == 1);
  CHECK(scores[0].loss == Approx(loss).epsilon(1e-6));
  CHECK(scores[0].header.tokens == std::ssize(files.tokens));
}

TEST_CASE("teacher scores: --sequence-length shortens the windows, which may be odd") {
  const Files files;
  TeacherOptions options = files.options();
  options.document_token = std::to_string(kStart);
  options.sequence_length = 2;
  write(options);
  check_documents(options, files.tokens, begins_of(kLengths), 2);
  options.sequence_length = 1;
  write(options);
  // Every token alone.
  const std::vector<Record> records = records_in(files.data);
  run_model(options, [&](LanguageModel& model) {
    check_record(records[6], log_probabilities_after(model, files.tokens, 6, 6), 5);
  });
  options.sequence_length = 3;  // a b c, c d e, e f g
  write(options);
  const std::vector<Record> odd = records_in(files.data);
  const std::int64_t begin = begins_of(kLengths)[4];
  run_model(options, [&](LanguageModel& model) {
    for (const std::int64_t at : {2, 3, 4, 5, 28}) {
      CAPTURE(at);
      const std::int64_t first = begin + (at < 3 ? 0 : (at - 1) / 2 * 2);
      check_record(odd[static_cast<std::size_t>(begin + at)],
                   log_probabilities_after(model, files.tokens, first, begin + at), 5);
    }
  });
}

TEST_CASE("teacher scores: a file without documents is one, and marks come before the token") {
  const Files files;
  TeacherOptions options = files.options(3);
  write(options);
  check_documents(options, files.tokens, {0});
  options.document_token = std::to_string(kStart);
  // A pair: the rejected answer does not see the chosen one.
  std::vector<TokenMarks> marks(files.tokens.size(), kTrained);
  marks[0] = kBegins;
  marks[20] = kTrained | kBegins | kRejected;
  marks[45] = kBegins;
  write_mark_file(mark_file_of(files.data), std::ssize(marks),
                  [&](const TakeMarks& take) { take(marks); });
  write(options);
  check_documents(options, files.tokens, {0, 20, 45});
}

TEST_CASE("teacher scores: the document token is that of the run, unless it is given") {
  const TemporaryDirectory folder;
  Config config = test::tiny_run(folder);
  config.train.steps = 1;
  config.train.eval_every = 0;
  config.data.val.clear();
  config.data.document_token = "5";
  train(config);
  const std::vector<TokenId> tokens = {5, 1, 2, 3, 5, 4, 3, 2, 1};
  write_token_file(folder / "few.bin", tokens);
  TeacherOptions options = options_of(config.train.dir, folder / "few.bin", 2);
  write(options);
  check_documents(options, tokens, {0, 4}, 24);
  options.document_token = "3";
  write(options);
  check_documents(options, tokens, {0, 3, 6}, 24);
}

TEST_CASE("teacher scores: a change in one document changes no record of another") {
  const Files files;
  TeacherOptions options = files.options();
  options.document_token = std::to_string(kStart);
  write(options);
  const std::string before = files.bytes();
  const auto begin = static_cast<std::size_t>(begins_of(kLengths)[3]), length = std::size_t{9};
  std::vector<TokenId> tokens = files.tokens;
  for (std::size_t i = 1; i < length; ++i) tokens[begin + i] = (tokens[begin + i] + 20) % 50 + 8;
  write_token_file(files.data, tokens);
  write(options);
  const std::string after = files.bytes();
  const std::size_t header = TeacherFile::kHeaderBytes, record = 5 * 4;
  const std::size_t first = header + begin * record, last = first + length * record;
  REQUIRE(after.size() == before.size());
  CHECK(after.substr(header, first - header) == before.substr(header, first - header));
  CHECK(after.substr(first, last - first) != before.substr(first, last - first));
  CHECK(after.substr(last) == before.substr(last));
}

TEST_CASE("teacher scores: a window that is computed in pieces has the records of a whole one") {
  constexpr std::int64_t kLong = 10000, kSmall = 11;
  const TemporaryDirectory folder;
  const TeacherOptions options =
      options_of(save_model(folder, kSmall, kLong), folder / "long.bin", 3);
  std::vector<TokenId> tokens = documents_of({kLong + 1000}, kSmall);
  write_token_file(options.data, tokens);
  write(options);
  const std::vector<Record> records = records_in(options.data);
  CHECK(records.back().empty());
  run_model(options, [&](LanguageModel& model) {
    // Pieces have 4,096 tokens. All records of the second window are in its second piece.
    for (const std::int64_t at : {0, 4095, 4096, 8192, 9999, 10000, 10998}) {
      CAPTURE(at);
      check_record(records[static_cast<std::size_t>(at)],
                   log_probabilities_after(model, tokens, window_of(at, kLong), at), 3);
    }
  });
}

TEST_CASE("teacher scores: all places are taken where K is the vocabulary") {
  const Files files;
  write(files.options(kVocabulary));
  for (const std::size_t at : {0, 20, 68}) {
    const Record record = records_in(files.data)[at];
    REQUIRE(record.size() == kVocabulary);
    double sum = 0.0;
    for (const auto& [id, value] : record) sum += std::exp(double{value});
    CHECK(sum == Approx(1.0).epsilon(4e-3));  // f16
  }
}

TEST_CASE("teacher scores: several ranks, and any number of threads, write the bytes of one") {
  const Files files;
  TeacherOptions options = files.options();
  options.document_token = std::to_string(kStart);
  const double loss = write(options).front().loss;
  const std::string one = files.bytes();
  options.threads = 3;
  write(options);
  CHECK(files.bytes() == one);
  options.threads = 1;
  options.ranks = 2;
  const auto scores = write(options);
  CHECK(files.bytes() == one);
  REQUIRE(scores.size() == 1);
  CHECK(scores[0].loss == loss);
}

TEST_CASE("teacher scores: a file that cannot be completed leaves the old one") {
  const Files files({kStart, kStart, kStart});
  write_file_atomically(teacher_file_of(files.data), "old");
  TeacherOptions options = files.options();
  options.document_token = std::to_string(kStart);
  options.ranks = GENERATE(1, 2);
  CHECK_THAT(error_of([&] { write(options); }), Contains("no document has two tokens"));
  CHECK(files.bytes() == "old");
  CHECK(std::distance(fs::directory_iterator(files.folder.path()), {}) == 3);
}

TEST_CASE("teacher records: equal logits are ordered by id, and no place is above certainty") {
  const test::Rank rank;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const Tensor logits =
      test::tensor_of({2, 0, 2, 1, 0, 0, 0, 0, 90, -90, -90, kNone}, {3, 4}, DType::f32);
  const RecordsOfRows all = teacher_records(logits, std::vector{1, kIgnoreIndex, 0}, 4);
  CHECK(std::vector(all.ids.begin(), all.ids.begin() + 4) == std::vector<TokenId>{0, 2, 3, 1});
  const double of_zero = -std::log(2 * std::exp(2.0) + std::exp(1.0) + 1.0);
  for (const auto& [place, logit] : {std::pair(0u, 2.0), {1u, 2.0}, {2u, 1.0}, {3u, 0.0}}) {
    CHECK(static_cast<float>(all.log_probabilities[place]) ==
          Approx(logit + of_zero).epsilon(0x1p-11));
  }
  for (std::size_t i = 4; i < 8; ++i) {
    CHECK(all.ids[i] == 0);
    CHECK(all.log_probabilities[i].bits == kNoProbability.bits);
  }
  CHECK(std::vector(all.ids.begin() + 8, all.ids.end()) == std::vector<TokenId>{0, 1, 2, 0});
  CHECK(static_cast<float>(all.log_probabilities[8]) == 0.0f);
  CHECK(static_cast<float>(all.log_probabilities[9]) == -180.0f);
  CHECK(all.log_probabilities[11].bits == kNoProbability.bits);
  CHECK(all.next_tokens == 2);
  CHECK(all.loss == Approx(-of_zero).epsilon(1e-6));
  const Tensor diverged = test::tensor_of({1, NAN, 0}, {1, 3}, DType::f32);
  CHECK_THAT(error_of([&] { teacher_records(diverged, std::vector{0}, 2); }),
             Contains("log-probability is nan"));
}

TEST_CASE("score --data writes a file next to each token file and prints a line about it") {
  const Files files;
  const auto score = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"score", "--model", files.model.string(), "--device", "cpu"});
    return test::run(more);
  };
  fs::copy_file(files.data, files.folder / "val.bin");
  const test::Outcome outcome = score({"--data", files.folder / "*.bin", "--top-k", "4"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out,
             Contains("train.teacher: the 4 likeliest next tokens of 70 tokens, 2144 "
                      "bytes; loss 4.") &&
                 Contains("\n" + (files.folder / "val.teacher").string() + ": the 4 "));
  CHECK(fs::file_size(files.folder / "val.teacher") == 2144);
  CHECK(records_in(files.folder / "val.bin") == records_in(files.data));
}

TEST_CASE("score --data refuses in one line") {
  const Files files;
  const auto refusal = [&](int status, std::vector<std::string> more) {
    more.insert(more.begin(), {"score", "--model", files.model.string(), "--device", "cpu"});
    const test::Outcome outcome = test::run(more);
    CHECK(outcome.status == status);
    CHECK(outcome.out.empty());
    if (status == 1) CHECK(std::ranges::count(outcome.err, '\n') == 1);
    return outcome.err;
  };
  const std::string data = files.data;
  write_token_file(files.folder / "other.bin", std::vector<TokenId>{1, 60, 61});
  CHECK_THAT(refusal(1, {"--data", data}), Contains("--data needs --top-k"));
  CHECK_THAT(refusal(2, {"--top-k", "3"}), Contains("--data"));
  CHECK_THAT(refusal(2, {"--tokens", data, "--data", data}), Contains("--data"));
  CHECK_THAT(refusal(2, {"--tokens", data, "--top-k", "3"}), Contains("excludes"));
  CHECK_THAT(refusal(2, {"--data", data, "--top-k", "0"}), Contains("--top-k"));
  CHECK_THAT(refusal(2, {"--data", data, "--top-k", "1024"}), Contains("1023"));
  CHECK_THAT(refusal(1, {"--data", data, "--top-k", "62"}),
             Contains("--top-k 62 is more than the model's 61 tokens"));
  CHECK_THAT(refusal(1, {"--data", data, "--top-k", "3", "--sequence-length", "9"}),
             Contains("--sequence-length 9 is more than the model's context of 8"));
  CHECK_THAT(refusal(1, {"--data", data, "--top-k", "3", "--document-token", "61"}),
             Contains("the document token 61"));
  CHECK_THAT(refusal(1, {"--data", data + ",missing.bin", "--top-k", "3"}),
             Contains("missing.bin"));
  CHECK_THAT(refusal(1, {"--data", files.folder / "other.bin", "--top-k", "3"}),
             Contains("other.bin") && Contains("61"));
  CHECK_FALSE(fs::exists(teacher_file_of(files.data)));
}

}  // namespace tessera
