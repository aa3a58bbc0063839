#include "tools/train/run_data.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "models/hugging_face.h"
#include "tools/config/parse.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// The tokens that `path` names, the value of `key`; no loader for an empty path.
std::optional<TokenLoader> open_tokens(std::string_view key, const fs::path& path,
                                       const ResolvedConfig& run, SampleOrder order) {
  if (path.empty()) return std::nullopt;
  std::optional<TokenLoader> loader;
  const DataConfig& data = run.config.data;
  check_key(run.config, key, [&] {
    loader.emplace(TokenCorpus::open(path, shape_of(run.model).vocab_size), data.sequence_length,
                   order, static_cast<std::uint64_t>(run.config.train.seed), run.document_token,
                   data.rows);
  });
  return loader;
}

/// The tokenizer of the data or of the model that training starts from; null if they have none.
std::unique_ptr<Tokenizer> load_tokenizer(const Config& config) {
  std::vector<fs::path> folders = {data_folder_of(config.data.train)};
  if (!config.model.init_from.empty()) folders.push_back(model_folder(config.model.init_from));
  for (const fs::path& folder : folders) {
    if (!folder.empty() && Tokenizer::exists(folder)) return Tokenizer::load(folder);
  }
  return nullptr;
}

/// The questions of data.hellaswag; each fits into the model's context.
std::vector<Question> questions_of(const ResolvedConfig& run) {
  std::vector<Question> questions;
  if (run.config.data.hellaswag.empty()) return questions;
  const TransformerShape shape = shape_of(run.model);
  check_key(run.config, "data.hellaswag", [&] {
    questions = read_questions(run.config.data.hellaswag, shape.vocab_size);
    for (const Question& question : questions) rows_of(question, shape.context);
  });
  return questions;
}

}  // namespace

RunData::RunData(const ResolvedConfig& run)
    : train(open_tokens("data.train", run.config.data.train, run, SampleOrder::shuffled).value()),
      val(open_tokens("data.val", run.config.data.val, run, SampleOrder::sequential)),
      tokenizer(load_tokenizer(run.config)),
      questions(questions_of(run)) {
  if (run.config.train.sample_every > 0) samples.emplace(run, tokenizer.get());
}

BatchSource batches_of(const TokenLoader& loader, std::int64_t first_step,
                       std::int64_t batch_size) {
  return {
      [&loader, first_step, batch_size](std::int64_t step, std::int64_t first, std::int64_t rows) {
        return loader.load(step - first_step, first, rows, batch_size);
      },
      [&loader, first_step, batch_size](std::int64_t step, std::int64_t first, std::int64_t rows) {
        return loader.valid_targets(step - first_step, first, rows, batch_size);
      }};
}

BatchSource batches_of(StagedLoader& loader, std::int64_t first_step) {
  return {[&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
            return loader.load(step - first_step, first, rows);
          },
          [&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
            return loader.valid_targets(step - first_step, first, rows);
          },
          [&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
            loader.stage(step - first_step, first, rows);
          }};
}

std::string describe_data(const ResolvedConfig& run, const RunData& data) {
  const DataConfig& config = run.config.data;
  const std::int64_t steps = run.config.train.steps, samples = data.train.samples();
  const double epochs = static_cast<double>(steps) * static_cast<double>(config.batch_size) /
                        static_cast<double>(samples);
  std::string text = fmt::format(
      "{}: {} steps of {} tokens, {:.2f} epochs of {} {}", config.train.string(), steps,
      tokens_per_step(config), epochs, samples,
      config.rows == RowKind::windows ? "windows" : fmt::format("{} rows", enum_name(config.rows)));
  if (config.rows != RowKind::windows) {
    text += fmt::format(", {:.1f}% full", 100.0 * data.train.share_of_inputs());
  }
  return text;
}

}  // namespace tessera
