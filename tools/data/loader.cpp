#include "tools/data/loader.h"

#include <algorithm>
#include <utility>

#include "models/documents.h"
#include "runtime/check.h"

namespace tessera {

TokenLoader::TokenLoader(RowSource source) {
  sources_.push_back(std::move(source));
}

TokenLoader::TokenLoader(std::vector<RowSource> sources, Mixture mixture)
    : sources_(std::move(sources)), mixture_(std::move(mixture)) {}

std::int64_t TokenLoader::samples() const {
  return mixture_ ? mixture_->epoch_rows() : sources_.front().samples();
}

double TokenLoader::share_of_inputs() const {
  double inputs = 0.0, places = 0.0;
  for (const RowSource& source : sources_) {
    inputs += static_cast<double>(source.inputs());
    places += static_cast<double>(source.samples()) * static_cast<double>(sequence_length());
  }
  return inputs / places;
}

std::vector<std::int64_t> TokenLoader::rows_of_sources(std::int64_t rows) const {
  return mixture_ ? mixture_->counts(rows) : std::vector{rows};
}

std::pair<std::size_t, std::int64_t> TokenLoader::sample_of(std::int64_t row) const {
  return mixture_ ? mixture_->at(row) : std::pair(std::size_t{0}, row);
}

Batch TokenLoader::load(std::int64_t step, std::int64_t first_row, std::int64_t rows,
                        const BatchSizes& sizes) const {
  check(step >= 0 && first_row >= 0 && rows >= 0 && first_row + rows <= sizes.rows(step),
        "step {} has no rows {} to {} in a batch of {}", step, first_row, first_row + rows,
        sizes.rows(step));
  TokenRows all;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const auto [source, sample] = sample_of(sizes.first_row(step) + row);
    sources_[source].add_row(sample, all);
  }
  const Shape shape{rows, sequence_length()};
  const RowSource& first = sources_.front();
  Batch batch{Tensor::from(all.inputs, shape), Tensor::from(all.targets, shape)};
  if (first.has_pairs()) batch.reference = Tensor::from(all.reference, shape);
  if (first.soft_targets() > 0) {
    const Shape of_each{rows, sequence_length(), first.soft_targets()};
    batch.soft = {Tensor::from(all.soft_classes, of_each), Tensor::from(all.soft_weights, of_each)};
  }
  if (first.kind() == RowKind::packed || first.has_pairs()) {
    batch.document_starts = Tensor::empty_on_host(shape, DType::i32);
    std::ranges::copy(all.document_starts, batch.document_starts.data<std::int32_t>());
  } else if (first.document_token() && first.kind() == RowKind::windows) {
    batch.document_starts = document_starts(all.inputs, sequence_length(), *first.document_token());
  }
  return batch;
}

std::int64_t TokenLoader::loss_terms(std::int64_t step, std::int64_t first_row, std::int64_t rows,
                                     const BatchSizes& sizes) const {
  std::int64_t targets = 0;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    const auto [source, sample] = sample_of(sizes.first_row(step) + row);
    targets += sources_[source].loss_terms(sample);
  }
  return targets;
}

}  // namespace tessera
