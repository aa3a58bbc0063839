#include "tools/data/row_source.h"

#include <algorithm>
#include <utility>

#include "kernels/cross_entropy/op.h"
#include "runtime/check.h"
#include "runtime/hash.h"
#include "runtime/random.h"
#include "tools/data/soft_targets.h"

namespace tessera {

RowSource::RowSource(TokenCorpus corpus, std::int64_t sequence_length, SampleOrder order,
                     std::uint64_t seed, std::optional<std::int32_t> document_token, RowKind rows)
    : corpus_(std::move(corpus)),
      sequence_length_(sequence_length),
      order_(order),
      seed_(seed),
      document_token_(document_token),
      kind_(rows) {
  check(sequence_length >= 1, "sequence length {} is not positive", sequence_length);
  check(corpus_.size() > 0, "{} holds no tokens", corpus_.name());
  rows == RowKind::windows ? set_windows() : set_document_rows();
}

void RowSource::set_windows() {
  const std::int64_t count = corpus_.size();
  check(count > sequence_length_,
        "{} holds {} tokens, too few for a sequence of {} and the token after it; shorten "
        "data.sequence_length",
        corpus_.name(), count, sequence_length_);
  samples_ = (count - 1) / sequence_length_;
  if (order_ == SampleOrder::shuffled) {
    // As many windows as fit after any offset, so that epochs have the same size.
    samples_ = std::max<std::int64_t>(1, count / sequence_length_ - 1);
    offsets_ = std::min(sequence_length_, count - samples_ * sequence_length_);
  }
}

void RowSource::set_document_rows() {
  check(document_token_ || corpus_.has_marks(),
        "rows of documents need the token at which a document starts; set data.document_token");
  check(!corpus_.is_generated(), "{} has no documents; data.rows can only be windows",
        corpus_.name());
  document_rows_.emplace(corpus_, static_cast<std::int32_t>(sequence_length_), kind_,
                         document_token_);
  samples_ = document_rows_->size();
  check(samples_ > 0, "{} holds {} tokens, too few to predict one from another", corpus_.name(),
        corpus_.size());
}

std::int64_t RowSource::inputs() const {
  return document_rows_ ? document_rows_->inputs() : samples_ * sequence_length_;
}

std::int64_t RowSource::place_in_epoch(std::int64_t sample) const {
  const std::int64_t place = sample % samples_;
  if (order_ == SampleOrder::sequential) return place;
  const auto epoch = static_cast<std::uint64_t>(sample / samples_);
  const RandomPermutation shuffle(RandomStream(seed_, "window order", epoch),
                                  static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(shuffle(static_cast<std::uint64_t>(place)));
}

std::int64_t RowSource::window_begin(std::int64_t sample) const {
  const auto epoch = static_cast<std::uint64_t>(sample / samples_);
  const std::uint64_t offset =
      RandomStream(seed_, "window offset").below(epoch, static_cast<std::uint64_t>(offsets_));
  return static_cast<std::int64_t>(offset) + place_in_epoch(sample) * sequence_length_;
}

void RowSource::add_tokens(std::int64_t first, std::int64_t tokens, TokenRows& rows) const {
  std::vector<TokenId> read(static_cast<std::size_t>(tokens) + 1);
  corpus_.read(first, read);
  rows.inputs.insert(rows.inputs.end(), read.begin(), read.end() - 1);
  rows.targets.insert(rows.targets.end(), read.begin() + 1, read.end());
  if (corpus_.has_marks()) {
    std::vector<TokenMarks> marks(read.size() - 1);
    corpus_.read_marks(first + 1, marks);
    const std::size_t begin = rows.targets.size() - marks.size();
    for (std::size_t i = 0; i < marks.size(); ++i) {
      if ((marks[i] & kTrained) == 0) rows.targets[begin + i] = kIgnoreIndex;
    }
  }
  if (distillation_) add_soft_targets(first, tokens, rows);
}

void RowSource::add_soft_targets(std::int64_t first, std::int64_t tokens, TokenRows& rows) const {
  const auto count = static_cast<std::size_t>(tokens);
  const auto places = static_cast<std::size_t>(distillation_->top_k), each = 1 + places;
  std::vector<TokenId> ids(count * places);
  std::vector<float16> log_probabilities(count * places);
  corpus_.read_teachers(first, {ids, log_probabilities});
  const std::size_t begin = rows.soft_classes.size();
  rows.soft_classes.resize(begin + count * each);
  rows.soft_weights.resize(begin + count * each);
  const std::span next_tokens = std::span(rows.targets).last(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = begin + i * each;
    write_soft_target({std::span(rows.soft_classes).subspan(at, each),
                       std::span(rows.soft_weights).subspan(at, each)},
                      next_tokens[i], distillation_->weight,
                      std::span(ids).subspan(i * places, places),
                      std::span(log_probabilities).subspan(i * places, places));
  }
}

void RowSource::add_documents(std::int64_t sample, TokenRows& rows) const {
  const std::size_t end = rows.inputs.size() + static_cast<std::size_t>(sequence_length_);
  std::int32_t place = 0;
  const std::int64_t row = place_in_epoch(sample);
  std::int64_t pair = document_rows_->first_pair(row);
  for (const DocumentRows::Piece& piece : document_rows_->row(row)) {
    add_tokens(piece.first, piece.tokens, rows);
    rows.document_starts.resize(rows.inputs.size(), place);
    if (has_pairs()) add_pair(piece, pair++, place, rows);
    place += piece.tokens;
  }
  if (has_pairs()) rows.reference.resize(end, 0.0f);
  // The empty places are a document, too, so that no token before them could attend to them.
  rows.inputs.resize(end, document_token_.value_or(0));
  rows.targets.resize(end, kIgnoreIndex);
  rows.soft_classes.resize(end * static_cast<std::size_t>(soft_targets()), kIgnoreIndex);
  rows.soft_weights.resize(end * static_cast<std::size_t>(soft_targets()), 0.0f);
  rows.document_starts.resize(end, place);
}

void RowSource::add_pair(const DocumentRows::Piece& piece, std::int64_t pair, std::int32_t place,
                         TokenRows& rows) const {
  std::vector<TokenMarks> marks(static_cast<std::size_t>(piece.tokens));
  corpus_.read_marks(piece.first, marks);
  const auto rejected = std::find_if(marks.begin(), marks.end(),
                                     [](TokenMarks mark) { return (mark & kRejected) != 0; });
  const std::ptrdiff_t chosen_tokens = rejected - marks.begin();
  const std::ptrdiff_t begin = std::ssize(rows.inputs) - piece.tokens;
  std::fill(rows.document_starts.begin() + begin + chosen_tokens, rows.document_starts.end(),
            place + static_cast<std::int32_t>(chosen_tokens));
  rows.reference.resize(rows.inputs.size(), 0.0f);
  if (reference_.empty()) return;
  const auto at = static_cast<std::size_t>(2 * pair);
  rows.reference[static_cast<std::size_t>(begin)] = reference_[at];
  rows.reference[static_cast<std::size_t>(begin + chosen_tokens)] = reference_[at + 1];
}

std::uint64_t RowSource::pairs_fingerprint() const {
  constexpr std::int64_t kAtATime = 1 << 20;
  Fnv1a hash;
  std::vector<TokenId> tokens;
  std::vector<TokenMarks> marks;
  for (std::int64_t begin = 0; begin < corpus_.size(); begin += kAtATime) {
    tokens.resize(static_cast<std::size_t>(std::min(kAtATime, corpus_.size() - begin)));
    marks.resize(tokens.size());
    corpus_.read(begin, tokens);
    corpus_.read_marks(begin, marks);
    hash.add(std::as_bytes(std::span(tokens)));
    hash.add(std::as_bytes(std::span(marks)));
  }
  for (std::int64_t row = 0; row < samples_; ++row) {
    for (const DocumentRows::Piece& piece : document_rows_->row(row)) {
      hash.add(std::as_bytes(std::span(&piece.first, 1)));
    }
    hash.add_byte(0);
  }
  return hash.value();
}

void RowSource::set_reference(std::vector<float> log_probabilities) {
  const std::int64_t pairs = document_rows_->pairs();
  check(std::ssize(log_probabilities) == 2 * pairs,
        "{} reference log-probabilities for {} pairs of {}", log_probabilities.size(), pairs,
        corpus_.name());
  reference_ = std::move(log_probabilities);
}

void RowSource::set_teacher(const Distillation& distillation, std::int64_t vocab_size) {
  corpus_.open_teachers(distillation.top_k, vocab_size);
  distillation_ = distillation;
}

void RowSource::add_row(std::int64_t sample, TokenRows& rows) const {
  if (document_rows_) return add_documents(sample, rows);
  add_tokens(window_begin(sample), sequence_length_, rows);
}

std::int64_t RowSource::loss_terms(std::int64_t sample) const {
  if (document_rows_) return document_rows_->loss_terms(place_in_epoch(sample));
  if (!corpus_.has_marks()) return sequence_length_;
  std::vector<TokenMarks> marks(static_cast<std::size_t>(sequence_length_));
  corpus_.read_marks(window_begin(sample) + 1, marks);
  std::int64_t targets = 0;
  for (const TokenMarks mark : marks) targets += mark & kTrained;
  return targets;
}

}  // namespace tessera
