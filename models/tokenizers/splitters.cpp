#include "models/tokenizers/splitters.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/tokenizers/fields.h"
#include "models/tokenizers/split_behavior.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

/// GPT-2's expression, which ByteLevel has built in.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kWordStart = "\u2581";

Piece part_of(const Piece& text, std::size_t begin, std::size_t end) {
  return {text.text.substr(begin, end - begin), text.at_start && begin == 0};
}

/// Every match, and the text between two matches, is a piece.
class IsolatingSplitter : public Splitter {
 public:
  explicit IsolatingSplitter(const std::string& pattern) : regex_(pattern) {}

  bool forgets() const override { return !regex_.looks_behind(); }

  void cut(const Piece& text, const PieceSink& sink) const override {
    cut_range(text, 0, text.text.size(), sink);
  }

  std::size_t cut_range(const Piece& text, std::size_t begin, std::size_t end,
                        const PieceSink& sink) const override {
    const std::size_t size = text.text.size();
    Regex::Search search(regex_, text.text);
    std::size_t piece = begin, from = begin;
    while (piece < end) {
      const auto match = search.next(from).value_or(Regex::Match{size, size});
      // An empty match separates the text before it from the text after it.
      const std::size_t gap = match.begin;
      if (gap > piece) sink(part_of(text, piece, gap));
      piece = gap;
      if (match.end > gap) {
        if (gap >= end) break;  // that piece belongs to the next range
        sink(part_of(text, gap, match.end));
        piece = from = match.end;
      } else if (gap < size) {
        from = gap + code_point_at(text.text, gap).bytes;
      } else {
        break;
      }
    }
    return piece;
  }

 private:
  Regex regex_;
};

/// The other behaviours of Split.
class PatternSplitter : public Splitter {
 public:
  PatternSplitter(SplitPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void cut(const Piece& text, const PieceSink& sink) const override {
    for (const auto& [begin, end] : pattern_.parts(text.text, behavior_, invert_)) {
      if (begin < end) sink(part_of(text, begin, end));
    }
  }

 private:
  SplitPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

/// Puts a space before a piece that does not begin with one.
class SpacePrefix : public Splitter {
 public:
  bool rewrites() const override { return true; }

  void cut(const Piece& text, const PieceSink& sink) const override {
    if (text.text.starts_with(' ')) return sink(text);
    std::string prefixed(1, ' ');
    prefixed += text.text;
    sink({prefixed, text.at_start});
  }
};

/// Spaces become a visible character, one of which may be put before the piece.
class VisibleSpaces : public Splitter {
 public:
  enum class Prepend { always, first, never };

  VisibleSpaces(std::string space, Prepend prepend) : space_(std::move(space)), prepend_(prepend) {}

  bool rewrites() const override { return true; }

  void cut(const Piece& text, const PieceSink& sink) const override {
    std::string visible;
    visible.reserve(text.text.size() + text.text.size() / 2);
    for (const char c : text.text) {
      if (c == ' ') {
        visible += space_;
      } else {
        visible += c;
      }
    }
    const bool wanted =
        prepend_ == Prepend::always || (prepend_ == Prepend::first && text.at_start);
    if (wanted && !visible.starts_with(space_)) visible.insert(0, space_);
    sink({visible, text.at_start});
  }

 private:
  std::string space_;
  Prepend prepend_;
};

/// Cuts before every visible space, or only before those that follow another character.
class WordSplitter : public Splitter {
 public:
  WordSplitter(std::string space, bool keeps_runs)
      : space_(std::move(space)), keeps_runs_(keeps_runs) {}

  bool forgets() const override { return true; }

  void cut(const Piece& text, const PieceSink& sink) const override {
    cut_range(text, 0, text.text.size(), sink);
  }

  std::size_t cut_range(const Piece& text, std::size_t begin, std::size_t end,
                        const PieceSink& sink) const override {
    while (begin < end) {
      const std::size_t next = guess(text.text, begin + 1);
      sink(part_of(text, begin, next));
      begin = next;
    }
    return begin;
  }

  std::size_t guess(std::string_view text, std::size_t from) const override {
    while (true) {
      const std::size_t found = text.find(space_, from);
      if (found == text.npos) return text.size();
      if (!keeps_runs_ || !text.substr(0, found).ends_with(space_)) return found;
      from = found + 1;
    }
  }

 private:
  std::string space_;
  bool keeps_runs_;
};

void append_split(SplitterChain& chain, const Fields& fields) {
  SplitPattern pattern(fields.at("pattern"));
  const auto behavior = split_behavior_from(fields.text("behavior"));
  const bool invert = fields.flag("invert", false);
  // Inverted, the same pieces are handed over.
  if (behavior == SplitBehavior::isolated && pattern.is_regex()) {
    chain.stages.push_back(std::make_unique<IsolatingSplitter>(pattern.text()));
  } else {
    chain.stages.push_back(std::make_unique<PatternSplitter>(std::move(pattern), behavior, invert));
  }
}

void append_byte_level(SplitterChain& chain, const Fields& fields) {
  if (fields.flag("add_prefix_space", true))
    chain.stages.push_back(std::make_unique<SpacePrefix>());
  if (fields.flag("use_regex", true)) {
    chain.stages.push_back(std::make_unique<IsolatingSplitter>(kByteLevelPattern));
  }
  chain.byte_level = true;
}

void append_metaspace(SplitterChain& chain, const Fields& fields) {
  const std::string space = fields.text("replacement", kWordStart);
  check(!space.empty() && code_point_at(space, 0).bytes == space.size(),
        "Metaspace: 'replacement' is {}; expected one character", excerpt(space));
  const bool adds_prefix = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.text("prepend_scheme", adds_prefix ? "always" : "never");
  check(scheme == "always" || scheme == "first" || scheme == "never",
        "Metaspace: 'prepend_scheme' is {}; expected always, first or never", excerpt(scheme));
  using Prepend = VisibleSpaces::Prepend;
  const auto prepend = scheme == "always"  ? Prepend::always
                       : scheme == "first" ? Prepend::first
                                           : Prepend::never;
  chain.stages.push_back(std::make_unique<VisibleSpaces>(space, prepend));
  if (fields.flag("split", true)) {
    chain.stages.push_back(std::make_unique<WordSplitter>(space, /*keeps_runs=*/false));
  }
}

void append_digits(SplitterChain& chain, const Fields& fields) {
  SplitPattern digits(nlohmann::json{{"Regex", "\\p{N}"}});
  const auto behavior =
      fields.flag("individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous;
  chain.stages.push_back(std::make_unique<PatternSplitter>(std::move(digits), behavior, false));
}

void append(SplitterChain& chain, const nlohmann::json& description) {
  check(!chain.byte_level, "a pre-tokenizer follows ByteLevel, which must be the last");
  const Fields fields(description, "pre_tokenizer");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.at("pretokenizers");
    check(parts.is_array(), "pre_tokenizer: 'pretokenizers' is not a list");
    for (const nlohmann::json& part : parts) append(chain, part);
  } else if (type == "Split") {
    append_split(chain, fields);
  } else if (type == "ByteLevel") {
    append_byte_level(chain, fields);
  } else if (type == "Metaspace") {
    append_metaspace(chain, fields);
  } else if (type == "Digits") {
    append_digits(chain, fields);
  } else {
    fail("the pre-tokenizer {} is not supported", excerpt(type));
  }
}

}  // namespace

std::size_t Splitter::cut_range(const Piece& text, std::size_t, std::size_t,
                                const PieceSink& sink) const {
  cut(text, sink);
  return text.text.size();
}

std::size_t Splitter::guess(std::string_view text, std::size_t from) const {
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
  return from;
}

SplitterChain make_splitters(const nlohmann::json& description) {
  SplitterChain chain;
  if (!description.is_null()) append(chain, description);
  return chain;
}

std::unique_ptr<Splitter> make_word_splitter() {
  return std::make_unique<WordSplitter>(kWordStart, /*keeps_runs=*/true);
}

}  // namespace tessera
