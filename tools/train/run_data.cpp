#include "tools/train/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "models/hugging_face.h"
#include "runtime/check.h"
#include "tools/config/parse.h"
#include "tools/train/preferences.h"
#include "tools/train/reference.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// With the reference, if the objective needs one.
RowSource open_with_reference(const fs::path& path, const ResolvedConfig& run, SampleOrder order) {
  RowSource rows = open_rows(path, run, order);
  if (needs_reference(run.config.train.objective)) {
    rows.set_reference(read_reference(reference_file_of(path), rows, model_fingerprint(run)));
  }
  return rows;
}

/// Rows to train on. Their teacher files are next to the token files.
RowSource open_training_rows(const fs::path& path, const ResolvedConfig& run) {
  RowSource rows = open_with_reference(path, run, SampleOrder::shuffled);
  if (run.config.train.objective == Objective::distill)
    rows.set_teacher(run.config.distill, shape_of(run.model).vocab_size);
  return rows;
}

/// The tokens of data.train. Entries of a mixture that have the same path share one source.
TokenLoader open_training(const ResolvedConfig& run) {
  const DataConfig& data = run.config.data;
  std::optional<TokenLoader> loader;
  check_key(run.config, "data.train", [&] {
    std::vector<fs::path> paths;
    std::vector<RowSource> sources;
    std::vector<MixturePart> parts;
    for (const TrainingSource& entry : data.train.sources) {
      const auto known = std::find(paths.begin(), paths.end(), entry.path);
      parts.push_back({.source = static_cast<std::size_t>(known - paths.begin()),
                       .weight = entry.weight,
                       .from_step = entry.from_step,
                       .until_step = entry.until_step});
      if (known != paths.end()) continue;
      paths.push_back(entry.path);
      sources.push_back(open_training_rows(entry.path, run));
    }
    std::vector<Mixture::Source> sizes;
    for (const RowSource& source : sources) sizes.push_back({source.samples(), source.inputs()});
    Mixture mixture(parts, sizes, data.mixture, batch_sizes(run.config));
    loader.emplace(std::move(sources), std::move(mixture));
  });
  return std::move(loader).value();
}

std::vector<ValidationTokens> open_validation(const ResolvedConfig& run) {
  const DataConfig& data = run.config.data;
  std::vector<ValidationTokens> opened;
  if (!data.val.empty()) {
    check_key(run.config, "data.val", [&] {
      check(data.validation.empty(), "data.validation is set, too; leave one out");
      opened.push_back(
          {"", TokenLoader(open_with_reference(data.val, run, SampleOrder::sequential))});
    });
  }
  for (const auto& [name, path] : data.validation) {
    check_key(run.config, "data.validation", [&] {
      opened.push_back(
          {name, TokenLoader(open_with_reference(path, run, SampleOrder::sequential))});
    });
  }
  return opened;
}

StopTokens stop_tokens_of(const Config& config, const Tokenizer* tokenizer) {
  StopTokens stop;
  if (!config.model.init_from.empty()) {
    stop = stop_tokens_of(model_folder(config.model.init_from), tokenizer);
  }
  stop.merge(stop_tokens_of(data_folder_of(config.data.train.first()), tokenizer));
  return stop;
}

/// The tokenizer of the data or of the model that training starts from; null if they have none.
std::unique_ptr<Tokenizer> load_tokenizer(const Config& config) {
  std::vector<fs::path> folders = {data_folder_of(config.data.train.first())};
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

RowSource open_rows(const fs::path& path, const ResolvedConfig& run, SampleOrder order) {
  const DataConfig& data = run.config.data;
  const Objective objective = run.config.train.objective;
  TokenCorpus corpus = TokenCorpus::open(path, shape_of(run.model).vocab_size);
  const bool pairs = holds_pairs(corpus);
  check(pairs == compares_pairs(objective), "{} has {} of answers, and train.objective is {}; {}",
        path.string(), pairs ? "pairs" : "no pairs", enum_name(objective),
        pairs ? "set it to dpo, ipo or simpo"
              : "prepare samples with chosen and rejected, with --answers-only");
  return {std::move(corpus),
          data.sequence_length,
          order,
          static_cast<std::uint64_t>(run.config.train.seed),
          run.document_token,
          data.rows};
}

RunData::RunData(const ResolvedConfig& run)
    : train(open_training(run)),
      validation(open_validation(run)),
      tokenizer(load_tokenizer(run.config)),
      stop(stop_tokens_of(run.config, tokenizer.get())),
      questions(questions_of(run)) {
  if (run.config.train.sample_every > 0) samples.emplace(run, tokenizer.get(), stop);
}

BatchSource batches_of(const TokenLoader& loader, std::int64_t first_step,
                       const BatchSizes& sizes) {
  return {[&loader, first_step, sizes](std::int64_t step, std::int64_t first, std::int64_t rows) {
            return loader.load(step - first_step, first, rows, sizes);
          },
          [&loader, first_step, sizes](std::int64_t step, std::int64_t first, std::int64_t rows) {
            return loader.loss_terms(step - first_step, first, rows, sizes);
          },
          {},
          [first_step, sizes](std::int64_t step) { return sizes.rows(step - first_step); }};
}

BatchSource batches_of(StagedLoader& loader, std::int64_t first_step) {
  return {
      [&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
        return loader.load(step - first_step, first, rows);
      },
      [&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
        return loader.loss_terms(step - first_step, first, rows);
      },
      [&loader, first_step](std::int64_t step, std::int64_t first, std::int64_t rows) {
        loader.stage(step - first_step, first, rows);
      },
      [&loader, first_step](std::int64_t step) { return loader.sizes().rows(step - first_step); }};
}

std::string describe_data(const ResolvedConfig& run, const RunData& data) {
  const DataConfig& config = run.config.data;
  const std::int64_t steps = run.config.train.steps;
  const std::vector<RowSource>& sources = data.train.sources();
  const std::vector<std::int64_t> rows =
      data.train.rows_of_sources(batch_sizes(run.config).first_row(steps));
  const std::string kind =
      config.rows == RowKind::windows ? "windows" : fmt::format("{} rows", enum_name(config.rows));
  std::string text =
      fmt::format("{} steps of {}{} tokens", steps,
                  run.config.train.batch_ramp.empty() ? "" : "up to ", tokens_per_step(config));
  if (sources.size() > 1) text = fmt::format("{} sources: {}", sources.size(), text);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const double epochs = static_cast<double>(rows[i]) / static_cast<double>(sources[i].samples());
    const std::string part =
        fmt::format("{:.2f} epochs of {} {}", epochs, sources[i].samples(), kind);
    text = sources.size() > 1 ? fmt::format("{}\n           {}: {}", text, sources[i].name(), part)
                              : fmt::format("{}: {}, {}", sources[i].name(), text, part);
  }
  std::int64_t pairs = 0, long_pairs = 0;
  for (const RowSource& source : sources) {
    if (!source.has_pairs()) continue;
    pairs += source.document_rows().pairs();
    long_pairs += source.document_rows().long_pairs();
  }
  if (pairs > 0) text += fmt::format(" with {} pairs", pairs);
  if (long_pairs > 0) text += fmt::format(" ({} longer than a row are left out)", long_pairs);
  if (run.config.train.objective == Objective::distill) {
    text += fmt::format(", with the teacher's {} likeliest tokens", run.config.distill.top_k);
  }
  if (config.rows != RowKind::windows) {
    text += fmt::format(", {:.1f}% full", 100.0 * data.train.share_of_inputs());
  }
  return text;
}

}  // namespace tessera
