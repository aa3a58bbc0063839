// Decoders: from the texts of tokens back to the text.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera {

/// Changes the list of token texts; the text is their concatenation after the last decoder.
using TextDecoder = std::function<void(std::vector<std::string>& texts)>;

/// The decoders of tokenizer.json's `decoder`, in order: ByteLevel, Metaspace, Replace,
/// ByteFallback, Fuse, Strip, Sequence. For null, tokens are joined by spaces. Bytes that are not
/// UTF-8 become U+FFFD. Raises Error for other kinds.
std::vector<TextDecoder> make_decoders(const nlohmann::json& description);

}  // namespace tessera
