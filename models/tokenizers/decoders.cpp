#include "models/tokenizers/decoders.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/fields.h"
#include "models/tokenizers/normalizers.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

void join(std::vector<std::string>& texts, std::string_view separator) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) all += separator;
    all += texts[i];
  }
  texts.assign(1, std::move(all));
}

void from_byte_level(std::vector<std::string>& texts) {
  for (std::string& text : texts) text = bytes_of_spelling(text).value_or(text);
  join(texts, "");
  texts.front() = repaired_utf8(texts.front());
}

/// The byte of a token <0x00>, ..., <0xFF>.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

/// Neighbouring byte tokens become their text if they are UTF-8, else one U+FFFD per byte.
void from_byte_fallback(std::vector<std::string>& texts) {
  std::vector<std::string> made;
  std::string bytes;
  const auto flush = [&] {
    if (is_valid_utf8(bytes)) {
      if (!bytes.empty()) made.push_back(bytes);
    } else {
      made.insert(made.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& text : texts) {
    if (const auto byte = byte_of(text)) {
      bytes += *byte;
    } else {
      flush();
      made.push_back(std::move(text));
    }
  }
  flush();
  texts = std::move(made);
}

TextDecoder metaspace(const Fields& fields) {
  const std::string space = fields.text("replacement", "\u2581");
  check(!space.empty(), "decoder: 'replacement' is empty");
  const bool adds_prefix = fields.flag("add_prefix_space", true);
  const bool prepends = fields.text("prepend_scheme", adds_prefix ? "always" : "never") != "never";
  const Normalizer remove = make_replacement({{"String", space}}, "");
  const Normalizer to_space = make_replacement({{"String", space}}, " ");
  return [=](std::vector<std::string>& texts) {
    // The pre-tokenizer put the first token's spaces there.
    if (prepends && !texts.empty()) remove(texts.front());
    std::ranges::for_each(texts, to_space);
  };
}

/// Removes up to `left` and `right` times `content` from the ends of every token.
TextDecoder strip(const Fields& fields) {
  const std::string content = fields.text("content");
  check(!content.empty() && code_point_at(content, 0).bytes == content.size(),
        "decoder: 'content' is {}; expected one character", excerpt(content));
  const std::int64_t left = fields.whole("start", 1 << 20), right = fields.whole("stop", 1 << 20);
  return [=](std::vector<std::string>& texts) {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (std::int64_t i = 0; i < left && rest.starts_with(content); ++i) {
        rest.remove_prefix(content.size());
      }
      for (std::int64_t i = 0; i < right && rest.ends_with(content); ++i) {
        rest.remove_suffix(content.size());
      }
      text = std::string(rest);
    }
  };
}

void append(std::vector<TextDecoder>& list, const nlohmann::json& description) {
  const Fields fields(description, "decoder");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.at("decoders");
    check(parts.is_array(), "decoder: 'decoders' is not a list");
    for (const nlohmann::json& part : parts) append(list, part);
  } else if (type == "ByteLevel") {
    list.push_back(from_byte_level);
  } else if (type == "ByteFallback") {
    list.push_back(from_byte_fallback);
  } else if (type == "Metaspace") {
    list.push_back(metaspace(fields));
  } else if (type == "Fuse") {
    list.push_back([](std::vector<std::string>& texts) { join(texts, ""); });
  } else if (type == "Strip") {
    list.push_back(strip(fields));
  } else if (type == "Replace") {
    list.push_back([replace = make_replacement(fields.at("pattern"), fields.text("content"))](
                       std::vector<std::string>& texts) { std::ranges::for_each(texts, replace); });
  } else {
    fail("the decoder {} is not supported", excerpt(type));
  }
}

}  // namespace

std::vector<TextDecoder> make_decoders(const nlohmann::json& description) {
  std::vector<TextDecoder> list;
  if (description.is_null()) {
    list.push_back([](std::vector<std::string>& texts) { join(texts, " "); });
  } else {
    append(list, description);
  }
  return list;
}

}  // namespace tessera
