// Continuous batching, without HTTP.
#include "tools/serve/text_batch.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "models/gpt2/model.h"
#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "sharding/strategy/strategy.h"
#include "tests/support/rank.h"
#include "tools/generate/continuation.h"

namespace tessera {
namespace {

/// A model over bytes with random weights.
struct TinyModel {
  Gpt2 model{{.vocab_size = 256, .context = 700, .layers = 2, .heads = 2, .width = 16}};
  std::unique_ptr<Strategy> strategy = make_single_strategy(model.units(), 1);
};

std::vector<std::int32_t> prompt_of(std::size_t tokens, std::int32_t first) {
  std::vector<std::int32_t> ids(tokens);
  std::iota(ids.begin(), ids.end(), first);
  for (std::int32_t& id : ids) id %= 256;
  return ids;
}

/// The parts of a text, joined.
struct Taken {
  TextPart all;
  int parts = 0;
};

TextJob job_of(std::vector<std::int32_t> prompt, std::int64_t tokens, Taken& taken,
               std::function<void()> after_part = {}) {
  TextJob job;
  job.prompt = std::move(prompt);
  job.growth = {.tokens = tokens, .seed = 7, .stop = {}};
  job.cancelled = std::make_shared<std::atomic<bool>>(false);
  job.deliver = [&taken, after_part](TextPart part) {
    ++taken.parts;
    taken.all.text += part.text;
    taken.all.scores.insert(taken.all.scores.end(), part.scores.begin(), part.scores.end());
    taken.all.finish = part.finish;
    taken.all.tokens = part.tokens;
    if (after_part) after_part();
  };
  return job;
}

std::vector<TextJob> list_of(TextJob job) {
  std::vector<TextJob> jobs;
  jobs.push_back(std::move(job));
  return jobs;
}

std::vector<float> values_of(const Taken& taken) {
  std::vector<float> values;
  for (const TokenScore& score : taken.all.scores) values.push_back(score.log_probability);
  return values;
}

}  // namespace

TEST_CASE("texts that join and leave a batch have the bits that they have alone", "[cpu]") {
  const test::Rank rank(1);
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  TextBatch batch(tokenizer, /*rows=*/3, /*queue=*/100);
  // The second and third prompt are read in several passes.
  const std::vector<std::size_t> prompts = {1, 300, 600, 5, 2, 40};
  const std::vector<std::int64_t> tokens = {30, 4, 20, 1, 12, 9};
  std::vector<Taken> taken(prompts.size());
  // Each text joins when the one before has got a part.
  std::function<void(std::size_t)> submit = [&](std::size_t i) {
    const auto next = [&, i, done = false]() mutable {
      if (std::exchange(done, true)) return;
      i + 1 < prompts.size() ? submit(i + 1) : batch.end();
    };
    batch.submit(list_of(job_of(prompt_of(prompts[i], 3), tokens[i], taken[i], next)));
  };
  submit(0);
  batch.run(tiny.model);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Generated alone =
        continue_prompts(tiny.model, {prompt_of(prompts[i], 3)}, {.tokens = tokens[i], .seed = 7})
            .front();
    CAPTURE(i);
    CHECK(values_of(taken[i]) == alone.log_probabilities);
    CHECK(taken[i].all.tokens == tokens[i]);
    CHECK(taken[i].all.finish == Finish::length);
  }
  CHECK(batch.load().finished == 6);
}

TEST_CASE("a prompt's scores are the model's log-probabilities, bit for bit", "[cpu]") {
  const test::Rank rank(1);
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  const std::int64_t new_tokens = GENERATE(0, 1, 3);
  const std::vector<std::int32_t> prompt = prompt_of(310, 9);
  TextBatch batch(tokenizer, 4, 100);
  Taken taken, other;
  TextJob job = job_of(prompt, new_tokens, taken);
  job.growth.score_prompt = true;
  job.growth.likeliest = 2;
  batch.submit(list_of(job_of({1, 2, 3}, 20, other)));
  batch.submit(list_of(std::move(job)));
  batch.end();
  batch.run(tiny.model);
  const std::int64_t count = 309;
  const auto ids = std::span<const std::int32_t>(prompt);
  const auto expected = tiny.model
                            .log_probabilities(Tensor::from(ids.first(count), {1, count}),
                                               Tensor::from(ids.last(count), {1, count}))
                            .to_vector<float>();
  REQUIRE(taken.all.scores.size() == static_cast<std::size_t>(count + new_tokens));
  auto values = values_of(taken);
  values.resize(static_cast<std::size_t>(count));
  CHECK(values == expected);
  for (const TokenScore& score : taken.all.scores) {
    REQUIRE(score.likeliest.size() == 2);
    CHECK(score.likeliest[0].second >= score.likeliest[1].second);
    CHECK(score.likeliest[0].second >= score.log_probability);
    for (const auto& [id, value] : score.likeliest) {
      if (id == score.token) CHECK(value == score.log_probability);
    }
  }
}

TEST_CASE("a cancelled text leaves its row after the next token, and a waiting one never runs",
          "[cpu]") {
  const test::Rank rank(1);
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  TextBatch batch(tokenizer, /*rows=*/1, /*queue=*/10);
  Taken first, second, third;
  const auto first_is_gone = std::make_shared<std::atomic<bool>>(false);
  TextJob job = job_of({1}, 600, first, [&] { *first_is_gone = true; });
  job.cancelled = first_is_gone;
  TextJob waiting = job_of({2}, 600, second);
  *waiting.cancelled = true;
  batch.submit(list_of(std::move(job)));
  batch.submit(list_of(std::move(waiting)));
  batch.submit(list_of(job_of({3}, 2, third)));
  batch.end();
  batch.run(tiny.model);
  CHECK(first.parts == 1);
  CHECK(second.parts == 0);
  CHECK(third.all.tokens == 2);
  CHECK(batch.load().cancelled == 2);
  CHECK(batch.load().finished == 1);
}

TEST_CASE("a request's texts wait together or not at all, and none joins after the end") {
  const ByteTokenizer tokenizer;
  TextBatch batch(tokenizer, 1, 3);
  Taken taken;
  std::vector<TextJob> two;
  for (int i = 0; i < 2; ++i) two.push_back(job_of({1}, 1, taken));
  CHECK(batch.submit(two) == TextBatch::Answer::accepted);
  CHECK(batch.submit(two) == TextBatch::Answer::full);
  CHECK(batch.load().waiting == 2);
  CHECK(batch.submit(list_of(job_of({1}, 1, taken))) == TextBatch::Answer::accepted);
  *two.front().cancelled = true;  // it makes room
  CHECK(batch.submit(list_of(job_of({1}, 1, taken))) == TextBatch::Answer::accepted);
  batch.end();
  CHECK(batch.submit(list_of(job_of({1}, 1, taken))) == TextBatch::Answer::ended);
}

TEST_CASE("an error of a pass ends the texts that run, and the next ones run", "[cpu]") {
  const test::Rank rank(1);
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  TextBatch batch(tokenizer, /*rows=*/1, /*queue=*/10);
  Taken bad, good;
  batch.submit(list_of(job_of({999}, 5, bad)));  // no token of the model
  batch.submit(list_of(job_of({9}, 5, good)));
  batch.end();
  batch.run(tiny.model);
  CHECK(bad.all.finish == Finish::error);
  CHECK(good.all.tokens == 5);
}

TEST_CASE("a token without a text ends its own text only", "[cpu]") {
  const test::Rank rank(1);
  TinyModel tiny;
  const auto tokenizer = CharTokenizer::from_characters({"a", "b"});
  TextBatch batch(tokenizer, /*rows=*/2, /*queue=*/10);
  Taken bad, good;
  batch.submit(list_of(job_of({1}, 50, bad)));  // it may choose any of the model's 256 tokens
  TextJob job = job_of({1}, 50, good);
  job.growth.choices = 2;
  batch.submit(list_of(std::move(job)));
  batch.end();
  batch.run(tiny.model);
  CHECK(bad.all.finish == Finish::error);
  CHECK(good.all.tokens == 50);
  CHECK(good.all.text.size() == 50);
}

}  // namespace tessera
