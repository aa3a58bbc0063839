#include "models/tokenizers/normalizers.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "models/tokenizers/fields.h"
#include "models/tokenizers/split_behavior.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

/// Whether all code points are below U+0300. Such text is in NFC.
bool is_latin(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

Normalizer unicode_form(int options, bool keeps_latin) {
  return [=](std::string& text) {
    if (keeps_latin && is_latin(text)) return;
    utf8proc_uint8_t* mapped = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
    check(length >= 0, "cannot normalize the text: {}", utf8proc_errmsg(length));
    text.assign(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
    std::free(mapped);
  };
}

void append(std::vector<Normalizer>& list, const nlohmann::json& description) {
  const Fields fields(description, "normalizer");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.at("normalizers");
    check(parts.is_array(), "normalizer: 'normalizers' is not a list");
    for (const nlohmann::json& part : parts) append(list, part);
  } else if (type == "NFC") {
    list.push_back(unicode_form(UTF8PROC_COMPOSE, true));
  } else if (type == "NFD") {
    list.push_back(unicode_form(UTF8PROC_DECOMPOSE, false));
  } else if (type == "NFKC") {
    list.push_back(unicode_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT, false));
  } else if (type == "NFKD") {
    list.push_back(unicode_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false));
  } else if (type == "Replace") {
    list.push_back(make_replacement(fields.at("pattern"), fields.text("content")));
  } else if (type == "Prepend") {
    list.push_back([before = fields.text("prepend")](std::string& text) {
      if (!text.empty()) text.insert(0, before);
    });
  } else if (type == "Strip") {
    list.push_back([left = fields.flag("strip_left", true),
                    right = fields.flag("strip_right", true)](std::string& text) {
      text = std::string(stripped(text, left, right));
    });
  } else {
    fail("the normalizer {} is not supported", excerpt(type));
  }
}

}  // namespace

std::vector<Normalizer> make_normalizers(const nlohmann::json& description) {
  std::vector<Normalizer> list;
  if (!description.is_null()) append(list, description);
  return list;
}

Normalizer make_replacement(const nlohmann::json& pattern, const std::string& content) {
  const auto replaced = std::make_shared<const SplitPattern>(pattern);
  return [=](std::string& text) {
    const auto matches = replaced->matches(text);
    if (matches.empty()) return;
    std::string made;
    std::size_t done = 0;
    for (const auto& [begin, end] : matches) {
      made.append(text, done, begin - done).append(content);
      done = end;
    }
    text = made.append(text, done);
  };
}

}  // namespace tessera
