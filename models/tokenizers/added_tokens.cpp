#include "models/tokenizers/added_tokens.h"

#include <algorithm>

#include "models/tokenizers/regex.h"
#include "models/tokenizers/utf8.h"

namespace tessera {
namespace {

/// The beginning of the last character before `position`.
std::size_t step_back(std::string_view text, std::size_t position) {
  do --position;
  while ((static_cast<unsigned char>(text[position]) & 0xc0) == 0x80);
  return position;
}

/// Whether the first character of the text is of a class.
bool begins_with(const Regex& one_character, std::string_view text) {
  if (text.empty()) return false;
  const std::string_view character = text.substr(0, code_point_at(text, 0).bytes);
  return Regex::Search(one_character, character).next(0).has_value();
}

bool begins_with_space(std::string_view text) {
  static const Regex space("\\s");
  return begins_with(space, text);
}

/// As \w of Rust's regular expressions.
bool begins_with_word(std::string_view text) {
  static const Regex word("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]");
  return begins_with(word, text);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && begins_with_word(text.substr(step_back(text, text.size())));
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  return !ends_with_word(text.substr(0, begin)) && !begins_with_word(text.substr(end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1), first_byte_(256) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    first_byte_[static_cast<unsigned char>(tokens_[i].text.front())] = true;
    std::size_t node = 0;
    for (const char c : tokens_[i].text) {
      const auto byte = static_cast<unsigned char>(c);
      const auto [found, is_new] = nodes_[node].next.emplace(byte, nodes_.size());
      const std::size_t child = found->second;
      if (is_new) nodes_.emplace_back();
      node = child;
    }
    if (!nodes_[node].token) nodes_[node].token = i;
  }
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
  const AddedToken* longest = nullptr;
  std::size_t node = 0;
  for (std::size_t i = position; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[i]));
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token) longest = &tokens_[*nodes_[node].token];
  }
  return longest;
}

void AddedTokenFinder::cut(std::string_view text, const Sink& sink) const {
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size() && !empty();) {
    const AddedToken* token = nullptr;
    if (first_byte_[static_cast<unsigned char>(text[i])]) token = longest_at(text, i);
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i, end = i + token->text.size();
    i = end;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    while (token->takes_left && begin > done) {
      const std::size_t before = step_back(text, begin);
      if (!begins_with_space(text.substr(before))) break;
      begin = before;
    }
    while (token->takes_right && begins_with_space(text.substr(end))) {
      end += code_point_at(text, end).bytes;
    }
    if (done < begin) sink(nullptr, text.substr(done, begin - done));
    sink(token, text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) sink(nullptr, text.substr(done));
}

}  // namespace tessera
