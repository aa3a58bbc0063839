#include "tools/data/loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/documents.h"
#include "runtime/check.h"
#include "runtime/random.h"

namespace tessera {

TokenLoader::TokenLoader(TokenCorpus corpus, std::int64_t sequence_length, SampleOrder order,
                         std::uint64_t seed, std::optional<std::int32_t> document_token)
    : corpus_(std::move(corpus)),
      sequence_length_(sequence_length),
      order_(order),
      seed_(seed),
      document_token_(document_token) {
  const auto count = corpus_.size();
  check(sequence_length >= 1, "sequence length {} is not positive", sequence_length);
  check(count > 0, "{} holds no tokens", corpus_.name());
  check(count > sequence_length,
        "{} holds {} tokens, too few for a sequence of {} and the token after it; shorten "
        "data.sequence_length",
        corpus_.name(), count, sequence_length);
  windows_ = (count - 1) / sequence_length;
  if (order_ == SampleOrder::shuffled) {
    // As many windows as fit after any offset, so that epochs have the same size.
    windows_ = std::max<std::int64_t>(1, count / sequence_length - 1);
    offsets_ = std::min(sequence_length, count - windows_ * sequence_length);
  }
}

std::int64_t TokenLoader::first_token(std::int64_t sample) const {
  const std::int64_t window = sample % windows_;
  if (order_ == SampleOrder::sequential) return window * sequence_length_;
  const auto epoch = static_cast<std::uint64_t>(sample / windows_);
  const RandomPermutation shuffle(RandomStream(seed_, "window order", epoch),
                                  static_cast<std::uint64_t>(windows_));
  const std::uint64_t offset =
      RandomStream(seed_, "window offset").below(epoch, static_cast<std::uint64_t>(offsets_));
  const std::uint64_t shuffled = shuffle(static_cast<std::uint64_t>(window));
  return static_cast<std::int64_t>(offset) + static_cast<std::int64_t>(shuffled) * sequence_length_;
}

Batch TokenLoader::load(std::int64_t step, std::int64_t first_row, std::int64_t rows,
                        std::int64_t batch_size) const {
  check(step >= 0 && first_row >= 0 && rows >= 0 && first_row + rows <= batch_size,
        "step {} has no rows {} to {} in a batch of {}", step, first_row, first_row + rows,
        batch_size);
  std::vector<std::int32_t> inputs, targets;
  std::vector<TokenId> window(static_cast<std::size_t>(sequence_length_) + 1);
  inputs.reserve(static_cast<std::size_t>(rows * sequence_length_));
  targets.reserve(inputs.capacity());
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    corpus_.read(first_token(step * batch_size + row), window);
    inputs.insert(inputs.end(), window.begin(), window.end() - 1);
    targets.insert(targets.end(), window.begin() + 1, window.end());
  }
  const Shape shape{rows, sequence_length_};
  return {Tensor::from(inputs, shape), Tensor::from(targets, shape),
          document_token_ ? document_starts(inputs, sequence_length_, *document_token_) : Tensor()};
}

}  // namespace tessera
