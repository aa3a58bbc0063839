#include "tools/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "models/hugging_face.h"
#include "models/tokenizers/tokenizer.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "tools/data/loader.h"
#include "tools/eval/hellaswag.h"
#include "tools/generate/model_tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The options, with those of the run where they were not given.
EvaluateOptions with_defaults(EvaluateOptions options) {
  const std::optional<Config> run = config_of_run(find_model(options.model, options.adapter).own());
  if (options.data.empty() && run) {
    options.data = run->data.validation;
    if (!run->data.val.empty()) options.data = {{run->data.val.string(), run->data.val}};
  }
  if (options.sequence_length == 0 && run) options.sequence_length = run->data.sequence_length;
  check(!options.data.empty() || !options.hellaswag.empty() || !options.tasks.empty(),
        "nothing to evaluate: {} is no run with data.val; give --data, --task or --hellaswag",
        options.model.string());
  check(options.samples.empty() || !options.tasks.empty(), "--out needs --task");
  if (!options.rows && run) options.rows = run->data.rows;
  if (options.document_token.empty() && run) options.document_token = run->data.document_token;
  return options;
}

/// Sequences are computed together up to so many tokens; a longer one alone.
constexpr std::int64_t kTokensAtATime = 4096;

void add_losses(LanguageModel& model, const TokenLoader& loader, SourceLoss& total) {
  const std::int64_t length = loader.sequence_length();
  const std::int64_t at_a_time = std::max<std::int64_t>(1, kTokensAtATime / length);
  for (std::int64_t first = 0; first < loader.samples(); first += at_a_time) {
    const std::int64_t rows = std::min(at_a_time, loader.samples() - first);
    const std::int64_t targets = loader.loss_terms(0, first, rows, loader.samples());
    if (targets == 0) continue;
    const Batch batch = loader.load(0, first, rows, loader.samples());
    const Variable loss =
        model.loss(batch.inputs, batch.targets, 1.0 / static_cast<double>(targets),
                   /*training=*/false, batch.document_starts);
    total.loss += loss.data().item<float>() * static_cast<double>(targets);
    total.tokens += targets;
  }
}

/// The bytes of text that the targets of all windows spell: tokens 1 to windows * length. No value without a
/// tokenizer.
std::optional<std::int64_t> target_bytes(const fs::path& folder, const TokenCorpus& corpus,
                                         std::int64_t targets) {
  if (folder.empty()) return std::nullopt;
  const auto tokenizer = Tokenizer::load(folder);
  constexpr std::int64_t kAtATime = 1 << 16;
  std::int64_t bytes = 0;
  for (std::int64_t done = 0; done < targets; done += kAtATime) {
    std::vector<TokenId> ids(static_cast<std::size_t>(std::min(kAtATime, targets - done)));
    corpus.read(1 + done, ids);
    const std::vector<std::int32_t> tokens(ids.begin(), ids.end());
    bytes += static_cast<std::int64_t>(tokenizer->decode(tokens).size());
  }
  return bytes;
}

SourceLoss measure_loss(LanguageModel& model, const EvaluateOptions& options,
                        const ValidationSource& source, std::int64_t length) {
  const std::int64_t vocab_size = model.shape().vocab_size;
  const TokenCorpus corpus = TokenCorpus::open(source.path, vocab_size);
  const RowKind rows = options.rows.value_or(RowKind::windows);
  const auto document_token =
      document_token_of(options, options.document_token, source.path, vocab_size);
  const TokenLoader loader(corpus, length, SampleOrder::sequential, /*seed=*/0, document_token,
                           rows);
  std::vector<std::string> less_work;
  if (length > kTokensAtATime) less_work.emplace_back("a shorter --sequence-length");
  SourceLoss total = {.name = source.name, .sequences = loader.samples(), .bytes = {}};
  with_inference_advice(options, less_work, [&] { add_losses(model, loader, total); });
  check(total.tokens > 0, "{}: no target is valid", corpus.name());
  check(std::isfinite(total.loss), "the validation loss is {}: the model diverged or is damaged",
        total.mean());
  // The bytes of a part of the tokens are not known.
  if (context().rank() == 0 && rows == RowKind::windows &&
      total.tokens == loader.samples() * length) {
    total.bytes = target_bytes(tokenizer_folder(options, source.path), corpus, total.tokens);
  }
  return total;
}

/// Known to every rank before it loads the model.
std::vector<OpenTask> open_tasks(const EvaluateOptions& options) {
  std::vector<OpenTask> tasks;
  for (const TaskOptions& task : options.tasks) tasks.push_back(open_task(task));
  return tasks;
}

void measure_sources(LanguageModel& model, const EvaluateOptions& options, Evaluation& result) {
  const std::int64_t context_length = model.shape().context;
  const std::int64_t length =
      options.sequence_length > 0 ? options.sequence_length : context_length;
  check(length <= context_length, "--sequence-length {} is more than the model's context of {}",
        length, context_length);
  for (const ValidationSource& source : options.data) {
    const SourceLoss loss = measure_loss(model, options, source, length);
    if (context().rank() != 0) continue;
    result.sources.push_back(loss);
    result.sequence_length = length;
  }
}

void answer_questions(LanguageModel& model, const EvaluateOptions& options, Evaluation& result) {
  const auto questions = read_questions(options.hellaswag, model.shape().vocab_size);
  const std::int64_t right = right_answers(model, questions);
  if (context().rank() != 0) return;
  result.questions = static_cast<std::int64_t>(questions.size());
  result.right = right;
}

void run_tasks(LanguageModel& model, const EvaluateOptions& options,
               const std::vector<OpenTask>& tasks, Evaluation& result) {
  const fs::path folder = tokenizer_folder(find_model(options.model, options.adapter));
  const auto tokenizer = Tokenizer::load(folder);
  for (const OpenTask& task : tasks) {
    TaskResult found = run_task(model, task, *tokenizer, stop_tokens_of(folder, tokenizer.get()));
    if (context().rank() == 0) result.tasks.push_back(std::move(found));
  }
}

}  // namespace

std::optional<double> SourceLoss::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return loss / std::numbers::ln2 / static_cast<double>(*bytes);
}

SourceLoss Evaluation::all_sources() const {
  SourceLoss all;
  for (const SourceLoss& source : sources) {
    all.loss += source.loss;
    all.tokens += source.tokens;
    all.sequences += source.sequences;
    all.bytes =
        all.bytes && source.bytes ? std::optional(*all.bytes + *source.bytes) : std::nullopt;
  }
  return all;
}

Evaluation evaluate(const EvaluateOptions& given) {
  const EvaluateOptions options = with_defaults(given);
  const std::vector<OpenTask> tasks = open_tasks(options);
  Evaluation result;
  run_model(options, [&](LanguageModel& model) {
    measure_sources(model, options, result);
    with_inference_advice(options, /*less_work=*/{}, [&] {
      if (!options.hellaswag.empty()) answer_questions(model, options, result);
      if (!tasks.empty()) run_tasks(model, options, tasks, result);
    });
  });
  // One process of a run has the results.
  if (!options.samples.empty() && !result.tasks.empty()) {
    write_file_atomically(options.samples, [&](std::ostream& file) {
      for (const TaskResult& task : result.tasks) file << samples_to_json(task);
    });
  }
  return result;
}

std::string to_text(const Evaluation& e) {
  std::string text;
  const SourceLoss all = e.all_sources();
  if (!e.sources.empty()) {
    text += fmt::format("validation loss {:.4f} over {} tokens, {} sequences of {}\n", all.mean(),
                        all.tokens, all.sequences, e.sequence_length);
    text += fmt::format("perplexity {:.4f}\n", std::exp(all.mean()));
    if (const auto bits = all.bits_per_byte()) text += fmt::format("bits per byte {:.4f}\n", *bits);
  }
  for (const SourceLoss& source : e.sources) {
    if (e.sources.size() == 1) break;
    text += fmt::format("  {}: loss {:.4f}, perplexity {:.4f}", source.name, source.mean(),
                        std::exp(source.mean()));
    if (const auto bits = source.bits_per_byte())
      text += fmt::format(", bits per byte {:.4f}", *bits);
    text += fmt::format(" over {} tokens\n", source.tokens);
  }
  if (e.questions > 0) {
    text += fmt::format("right answers {:.4f}: {} of {} questions\n",
                        static_cast<double>(e.right) / static_cast<double>(e.questions), e.right,
                        e.questions);
  }
  for (const TaskResult& task : e.tasks) text += to_text(task);
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const SourceLoss& source) {
  const bool none = source.tokens == 0;
  const std::optional<double> bits = source.bits_per_byte();
  return {{"val_loss", none ? Json() : Json(source.mean())},
          {"perplexity", none ? Json() : Json(std::exp(source.mean()))},
          {"tokens", source.tokens},
          {"sequences", source.sequences},
          {"bits_per_byte", bits ? Json(*bits) : Json()}};
}

}  // namespace

std::string to_json(const Evaluation& e) {
  Json object = json_of(e.all_sources());
  object["hellaswag"] = e.questions > 0
                            ? Json(static_cast<double>(e.right) / static_cast<double>(e.questions))
                            : Json();
  object["questions"] = e.questions;
  object["sources"] = Json::array();
  for (const SourceLoss& source : e.sources) {
    Json one = {{"name", source.name}};
    one.update(json_of(source));
    object["sources"].push_back(one);
  }
  object["tasks"] = Json::array();
  for (const TaskResult& task : e.tasks) object["tasks"].push_back(to_json(task));
  return object.dump();
}

}  // namespace tessera
