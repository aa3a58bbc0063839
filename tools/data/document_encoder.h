// Documents to tokens, on all threads of the current context.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/tokenizer.h"
#include "tools/data/samples.h"

namespace tessera {

/// The last place in `text` where it may be cut: its tokens are those of the two parts. It is an end
/// of a line, or else a space, between two letters, and the text around it is encoded to see that its
/// tokens come apart there. 0 if the last half of the text has no such place.
std::size_t find_cut(std::string_view text, const Tokenizer& tokenizer);

/// Gathers texts and encodes them in batches, which are cut into jobs of equal size in bytes. The
/// tokens are handed over in the order of the texts. Memory: a batch and its tokens.
class DocumentEncoder {
 public:
  using TakeTokens = std::function<void(std::span<const std::int32_t> tokens, bool ends_document)>;

  /// The tokenizer must outlive the encoder.
  DocumentEncoder(const Tokenizer& tokenizer, TakeTokens take);

  /// A document, or a part of one.
  void add(std::string text, bool ends_document);
  /// A document with marks for its tokens (encode_sample). Errors are raised by the call that encodes
  /// it: those of the first bad sample.
  void add(Sample sample, std::optional<std::int32_t> end_of_text);
  /// Encodes and hands over everything that was added.
  void flush();

 private:
  struct Part {
    std::string text;
    bool ends_document = false;
    std::optional<Sample> sample = {};
    std::optional<std::int32_t> end_of_text = {};
    std::vector<std::int32_t> tokens = {};
    std::string problem = {};
  };

  void add(Part part, std::size_t bytes);
  void encode(Part& part) const;

  const Tokenizer& tokenizer_;
  TakeTokens take_;
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera
