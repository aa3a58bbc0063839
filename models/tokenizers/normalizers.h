// Normalizers: changes to the text before it is cut into pieces.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tessera {

using Normalizer = std::function<void(std::string& text)>;

/// The normalizers of tokenizer.json's `normalizer`, in order: NFC, NFD, NFKC, NFKD, Replace,
/// Prepend, Strip, and Sequence of these; an empty list for null. The text must be valid UTF-8 and
/// not empty. Raises Error for other kinds.
std::vector<Normalizer> make_normalizers(const nlohmann::json& description);

/// `text` with every match of a tokenizer.json `pattern` ({"String": ...} or {"Regex": ...})
/// replaced.
Normalizer make_replacement(const nlohmann::json& pattern, const std::string& content);

}  // namespace tessera
