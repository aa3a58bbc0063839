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
#include "tools/config/parse.h"
#include "tools/data/loader.h"
#include "tools/eval/hellaswag.h"
#include "tools/train/resolve.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The settings of the run that made the model of this folder, if there is one.
std::optional<Config> config_of_run(const EvaluateOptions& options) {
  const fs::path folder = fs::weakly_canonical(find_model(options.model, options.adapter).own());
  const fs::path file = folder.parent_path() / "config.yaml";
  if (folder.filename() != "model" || !fs::exists(file)) return std::nullopt;
  return load_config(file, {});
}

/// The options, with those of the run where they were not given.
EvaluateOptions with_defaults(EvaluateOptions options) {
  const std::optional<Config> run = config_of_run(options);
  if (options.data.empty() && run) options.data = run->data.val;
  if (options.sequence_length == 0 && run) options.sequence_length = run->data.sequence_length;
  check(!options.data.empty() || !options.hellaswag.empty(),
        "nothing to evaluate: {} is no run with data.val; give --data or --hellaswag",
        options.model.string());
  if (!options.rows && run) options.rows = run->data.rows;
  if (options.document_token.empty() && run) options.document_token = run->data.document_token;
  return options;
}

/// The sum of the cross-entropies of all valid targets, and their number.
struct Total {
  double loss = 0.0;
  std::int64_t targets = 0;
};

/// Sequences are computed together up to so many tokens; a longer one alone.
constexpr std::int64_t kTokensAtATime = 4096;

Total total_loss(LanguageModel& model, const TokenLoader& loader) {
  const std::int64_t length = loader.sequence_length();
  const std::int64_t at_a_time = std::max<std::int64_t>(1, kTokensAtATime / length);
  Total total;
  for (std::int64_t first = 0; first < loader.samples(); first += at_a_time) {
    const std::int64_t rows = std::min(at_a_time, loader.samples() - first);
    const std::int64_t targets = loader.loss_terms(0, first, rows, loader.samples());
    if (targets == 0) continue;
    const Batch batch = loader.load(0, first, rows, loader.samples());
    const Variable loss =
        model.loss(batch.inputs, batch.targets, 1.0 / static_cast<double>(targets),
                   /*training=*/false, batch.document_starts);
    total.loss += loss.data().item<float>() * static_cast<double>(targets);
    total.targets += targets;
  }
  return total;
}

/// The folder of the model's tokenizer, or else of the data's; empty without one.
fs::path tokenizer_folder(const EvaluateOptions& options) {
  const ModelFiles files = find_model(options.model, options.adapter);
  for (const fs::path& folder : {tokenizer_folder(files), data_folder_of(options.data)}) {
    if (!folder.empty() && Tokenizer::exists(folder)) return folder;
  }
  return {};
}

std::optional<std::int32_t> document_token_of(const EvaluateOptions& options,
                                              std::int64_t vocab_size) {
  try {
    return find_document_token(options.document_token, tokenizer_folder(options), vocab_size);
  } catch (const Error& error) {
    throw Error(fmt::format("the document token {}", error.what()));
  }
}

/// The bytes of text that the targets of all windows spell: tokens 1 to windows * length. No value without a
/// tokenizer.
std::optional<std::int64_t> target_bytes(const EvaluateOptions& options, const TokenCorpus& corpus,
                                         std::int64_t targets) {
  const fs::path folder = tokenizer_folder(options);
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

void measure_loss(LanguageModel& model, const EvaluateOptions& options, Evaluation& result) {
  const TransformerShape& shape = model.shape();
  const TokenCorpus corpus = TokenCorpus::open(options.data, shape.vocab_size);
  const std::int64_t length = options.sequence_length > 0 ? options.sequence_length : shape.context;
  check(length <= shape.context, "--sequence-length {} is more than the model's context of {}",
        length, shape.context);
  const RowKind rows = options.rows.value_or(RowKind::windows);
  const auto document_token = document_token_of(options, shape.vocab_size);
  const TokenLoader loader(corpus, length, SampleOrder::sequential, /*seed=*/0, document_token,
                           rows);
  std::vector<std::string> less_work;
  if (length > kTokensAtATime) less_work.emplace_back("a shorter --sequence-length");
  Total total;
  with_inference_advice(options, less_work, [&] { total = total_loss(model, loader); });
  if (context().rank() != 0) return;
  check(total.targets > 0, "{}: no target is valid", corpus.name());
  result.val_loss = total.loss / static_cast<double>(total.targets);
  result.tokens = total.targets;
  result.sequences = loader.samples();
  result.sequence_length = length;
  check(std::isfinite(*result.val_loss),
        "the validation loss is {}: the model diverged or is damaged", *result.val_loss);
  // The bytes of a part of the tokens are not known.
  if (rows != RowKind::windows || total.targets != loader.samples() * length) return;
  if (const auto bytes = target_bytes(options, corpus, total.targets); bytes && *bytes > 0) {
    result.bits_per_byte = total.loss / std::numbers::ln2 / static_cast<double>(*bytes);
  }
}

}  // namespace

Evaluation evaluate(const EvaluateOptions& given) {
  const EvaluateOptions options = with_defaults(given);
  Evaluation result;
  run_model(options, [&](LanguageModel& model) {
    if (!options.data.empty()) measure_loss(model, options, result);
    if (options.hellaswag.empty()) return;
    const auto questions = read_questions(options.hellaswag, model.shape().vocab_size);
    std::int64_t right = 0;
    with_inference_advice(options, /*less_work=*/{},
                          [&] { right = right_answers(model, questions); });
    if (context().rank() != 0) return;
    result.questions = static_cast<std::int64_t>(questions.size());
    result.right = right;
  });
  return result;
}

std::string to_text(const Evaluation& e) {
  std::string text;
  if (e.val_loss) {
    text += fmt::format("validation loss {:.4f} over {} tokens, {} sequences of {}\n", *e.val_loss,
                        e.tokens, e.sequences, e.sequence_length);
    if (e.bits_per_byte) text += fmt::format("bits per byte {:.4f}\n", *e.bits_per_byte);
  }
  if (e.questions > 0) {
    text += fmt::format("right answers {:.4f}: {} of {} questions\n",
                        static_cast<double>(e.right) / static_cast<double>(e.questions), e.right,
                        e.questions);
  }
  return text;
}

std::string to_json(const Evaluation& e) {
  using Json = nlohmann::ordered_json;
  const auto value = [](const std::optional<double>& number) {
    return number ? Json(*number) : Json();
  };
  const Json share = e.questions > 0
                         ? Json(static_cast<double>(e.right) / static_cast<double>(e.questions))
                         : Json();
  return Json{
      {"val_loss", value(e.val_loss)},           {"tokens", e.tokens}, {"sequences", e.sequences},
      {"bits_per_byte", value(e.bits_per_byte)}, {"hellaswag", share}, {"questions", e.questions}}
      .dump();
}

}  // namespace tessera
