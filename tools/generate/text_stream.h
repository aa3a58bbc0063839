// The text of tokens that come one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/tokenizers/tokenizer.h"

namespace tessera {

/// A character may be spread over several tokens, and the text of a token may depend on the one
/// before. So text is handed out when it is complete.
class TextStream {
 public:
  /// Continues `prompt`, whose text is not handed out.
  TextStream(const Tokenizer& tokenizer, std::vector<std::int32_t> prompt);

  /// The text that this token completes; may be empty.
  std::string push(std::int32_t token);
  /// The rest, complete or not.
  std::string finish();

 private:
  std::string fresh_text() const;

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;  // those handed out last, then those to come
  std::size_t shown_;                 // of tokens_, handed out
};

}  // namespace tessera
