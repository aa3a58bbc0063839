#include "tools/data/document_encoder.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

constexpr std::size_t kJobBytes = std::size_t{1} << 18;
/// A batch has so many jobs per thread, so that threads that are done early find more.
constexpr std::size_t kJobsPerThread = 16;
/// Text on both sides of a cut that is encoded to see whether tokens come apart there.
constexpr std::size_t kAround = 256;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Moves to the beginning of the character that `at` lies in.
std::size_t character_at(std::string_view text, std::size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

bool comes_apart(std::string_view text, std::size_t at, const Tokenizer& tokenizer) {
  const std::size_t begin = character_at(text, at > kAround ? at - kAround : 0);
  const std::size_t end = character_at(text, std::min(at + kAround, text.size()));
  std::vector<std::int32_t> apart = tokenizer.encode(text.substr(begin, at - begin));
  const std::vector<std::int32_t> right = tokenizer.encode(text.substr(at, end - at));
  apart.insert(apart.end(), right.begin(), right.end());
  return apart == tokenizer.encode(text.substr(begin, end - begin));
}

}  // namespace

std::size_t find_cut(std::string_view text, const Tokenizer& tokenizer) {
  for (const char separator : {'\n', ' '}) {
    int tries = 8;
    for (std::size_t at = text.size(); at > text.size() / 2 && tries > 0;) {
      at = text.rfind(separator, at - 1);
      if (at == text.npos || at == 0 || at + 1 >= text.size()) break;
      if (!is_letter(text[at - 1]) || !is_letter(text[at + 1])) continue;
      // A line's end belongs to the line, a space to the word behind it.
      const std::size_t cut = separator == '\n' ? at + 1 : at;
      if (comes_apart(text, cut, tokenizer)) return cut;
      --tries;
    }
  }
  return 0;
}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, TakeTokens take)
    : tokenizer_(tokenizer), take_(std::move(take)) {}

void DocumentEncoder::add(std::string text, bool ends_document) {
  const std::size_t bytes = text.size();
  add({.text = std::move(text), .ends_document = ends_document}, bytes);
}

void DocumentEncoder::add(Sample sample, std::optional<std::int32_t> end_of_text) {
  const std::size_t bytes = whole_text(sample).size();
  add({.ends_document = true, .sample = std::move(sample), .end_of_text = end_of_text}, bytes);
}

void DocumentEncoder::add(Part part, std::size_t bytes) {
  bytes_ += bytes;
  parts_.push_back(std::move(part));
  const auto threads = static_cast<std::size_t>(context().threads().size());
  if (bytes_ >= kJobBytes * kJobsPerThread * threads) flush();
}

void DocumentEncoder::encode(Part& part) const {
  if (!part.sample) {
    part.tokens = tokenizer_.encode(part.text);
    part.text = {};
    return;
  }
  try {
    part.tokens = encode_sample(*part.sample, tokenizer_, part.end_of_text);
  } catch (const Error& error) {
    part.problem = error.what();
  }
  part.sample->chosen = {};
  part.sample->rejected = {};
}

void DocumentEncoder::flush() {
  std::vector<std::size_t> begins;  // of the jobs, in parts
  std::size_t bytes = kJobBytes;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (bytes >= kJobBytes) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += parts_[i].sample ? whole_text(*parts_[i].sample).size() : parts_[i].text.size();
  }
  begins.push_back(parts_.size());
  context().threads().run(static_cast<std::int64_t>(begins.size()) - 1, [&](std::int64_t job) {
    const auto j = static_cast<std::size_t>(job);
    for (std::size_t i = begins[j]; i < begins[j + 1]; ++i) {
      encode(parts_[i]);
    }
  });
  for (const Part& part : parts_) {
    check(part.problem.empty(), "{}", part.problem);
    take_(part.tokens, part.ends_document);
  }
  parts_.clear();
  bytes_ = 0;
}

}  // namespace tessera
