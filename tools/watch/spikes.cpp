#include "tools/watch/spikes.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tools/train/events.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

/// The numbers under a name in each of these rows, [rows, T] i32.
Tensor column_of(const nlohmann::json& rows, const char* name, std::int64_t first_row,
                 std::int64_t count) {
  std::vector<std::int32_t> values;
  for (std::int64_t row = first_row; row < first_row + count; ++row) {
    for (const nlohmann::json& value : rows.at(static_cast<std::size_t>(row)).at(name)) {
      values.push_back(value.get<std::int32_t>());
    }
  }
  return Tensor::from(values, {count, static_cast<std::int64_t>(values.size()) / count});
}

Json rows_of(const KeptStep& step, const TokenLoader& loader, const BatchSizes& sizes,
             const Tokenizer* tokenizer) {
  Json rows = Json::array();
  for (std::int64_t row = 0; row < sizes.rows(step.batch); ++row) {
    const Batch batch = loader.load(step.batch, row, 1, sizes);
    const auto inputs = batch.inputs.to_vector<std::int32_t>();
    Json kept = {{"row", row}, {"sample", sizes.first_row(step.batch) + row}, {"inputs", inputs}};
    kept["targets"] = batch.targets.to_vector<std::int32_t>();
    if (batch.document_starts.defined()) {
      kept["document_starts"] = batch.document_starts.to_vector<std::int32_t>();
    }
    if (tokenizer != nullptr) kept["text"] = tokenizer->decode(inputs);
    rows.push_back(std::move(kept));
  }
  return rows;
}

}  // namespace

std::optional<double> SpikeDetector::spike(float loss) {
  if (factor_ == 0.0) return std::nullopt;
  std::optional<double> found;
  if (last_.size() >= kFewest) {
    const double mean =
        std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
    if (!(loss <= factor_ * mean)) found = mean;
  }
  if (!std::isfinite(loss)) return found;
  last_.push_back(loss);
  if (last_.size() > kLosses) last_.pop_front();
  return found;
}

std::string write_kept(const std::filesystem::path& file, const KeptStep& step,
                       const TokenLoader& loader, const BatchSizes& sizes,
                       const Tokenizer* tokenizer) {
  const Json kept = {{"step", step.step},
                     {"batch", step.batch},
                     {"loss", finite_or_null(step.loss)},
                     {"gradient_norm", finite_or_null(step.gradient_norm)},
                     {"mean_loss", step.mean_loss},
                     {"rows", rows_of(step, loader, sizes, tokenizer)}};
  try {
    make_writable_directory(file.parent_path());
    write_file_atomically(file, kept.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Batch kept_rows(const std::filesystem::path& file, std::int64_t first_row, std::int64_t rows) {
  const nlohmann::json kept = read_json_file(file);
  try {
    const nlohmann::json& all = kept.at("rows");
    Batch batch = {column_of(all, "inputs", first_row, rows),
                   column_of(all, "targets", first_row, rows)};
    if (all.at(static_cast<std::size_t>(first_row)).contains("document_starts")) {
      const Tensor starts = column_of(all, "document_starts", first_row, rows);
      batch.document_starts = starts.to_host();
    }
    return batch;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not a kept step: {}", file.string(), error.what());
  }
}

std::filesystem::path kept_path(const std::filesystem::path& run, std::int64_t step) {
  return run / "kept" / fmt::format("step_{}.json", step);
}

}  // namespace tessera
