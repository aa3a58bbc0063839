#include "models/tokenizers/normalizers.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "models/tokenizers/fields.h"
#include "models/tokenizers/regex.h"
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

std::string replace_text(std::string_view text, const std::string& from, const std::string& to) {
  std::string made;
  std::size_t done = 0;
  for (std::size_t found; (found = text.find(from, done)) != text.npos;) {
    made += text.substr(done, found - done);
    made += to;
    done = found + from.size();
  }
  made += text.substr(done);
  return made;
}

std::string replace_matches(std::string_view text, const Regex& regex, const std::string& to) {
  std::string made;
  Regex::Search search(regex, text);
  std::size_t done = 0, from = 0;
  while (from <= text.size()) {
    const auto match = search.next(from);
    if (!match) break;
    made += text.substr(done, match->begin - done);
    made += to;
    done = from = match->end;
    if (match->begin != match->end) continue;
    if (from == text.size()) break;
    from += code_point_at(text, from).bytes;
  }
  made += text.substr(std::min(done, text.size()));
  return made;
}

bool is_space(char32_t point) {  // Unicode's White_Space
  return (point >= 0x09 && point <= 0x0d) || point == 0x20 || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

void strip(std::string& text, bool left, bool right) {
  std::size_t first = text.size(), last = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    if (!is_space(point.value)) {
      first = std::min(first, i);
      last = i + point.bytes;
    }
    i += point.bytes;
  }
  const std::size_t begin = left ? first : 0;
  const std::size_t end = right ? last : text.size();
  text = begin < end ? text.substr(begin, end - begin) : "";
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
      strip(text, left, right);
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
  const Fields fields(pattern, "pattern");
  if (!fields.at("Regex").is_null()) {
    const auto regex = std::make_shared<const Regex>(fields.text("Regex"));
    return [=](std::string& text) { text = replace_matches(text, *regex, content); };
  }
  const std::string from = fields.text("String");
  check(!from.empty(), "a pattern to replace is empty");
  return [=](std::string& text) {
    if (text.find(from) != text.npos) text = replace_text(text, from, content);
  };
}

}  // namespace tessera
