// Byte-pair encoding: a vocabulary, and merges in the order of their priority.
//
// A piece of text begins as one symbol per character (or per byte). The neighbours whose merge
// comes first in the list become one symbol, the leftmost such pair first, until no merge applies.
// The symbols that remain are the tokens. (Sennrich et al. 2016; the results are those of Hugging
// Face's tokenizers, models/bpe.)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera {

/// A hash that finds a std::string by a view of its text.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

/// Ids of two neighbours to the merge's priority and the id of the merged symbol.
class MergeTable {
 public:
  struct Merge {
    std::int32_t rank;  // 0 comes first
    std::int32_t id;
  };

  explicit MergeTable(std::size_t merges);
  /// A later merge of the same pair replaces the earlier one.
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge{};
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
};

struct BpeOptions {
  /// Symbols begin as bytes, and the vocabulary spells bytes (byte_spelling.h); else as characters.
  bool byte_level = false;
  /// A piece that is in the vocabulary is taken whole.
  bool ignore_merges = false;
  /// A character outside the vocabulary becomes its bytes' tokens <0x00>, ..., <0xFF>.
  bool byte_fallback = false;
  /// The token of a character outside the vocabulary. Without one such characters are left out.
  std::optional<std::string> unknown;
  /// Neighbouring unknown characters become one token.
  bool fuse_unknown = false;
};

class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  /// `ids` gives every token's id. Raises Error if a merge names a token that it lacks, or makes
  /// one.
  Bpe(TextMap<std::int32_t> ids, const Merges& merges, const BpeOptions& options);

  const TextMap<std::int32_t>& ids() const { return ids_; }
  const BpeOptions& options() const { return options_; }
  /// Whether no token spans the place before a U+2581 that follows another character. Text may
  /// then be cut there first.
  bool words_stay_apart() const { return words_stay_apart_; }

  /// Appends the tokens of a piece, which must be valid UTF-8 unless byte_level.
  void encode(std::string_view piece, std::vector<std::int32_t>& tokens) const;

 private:
  void index_bytes();
  void index_characters();
  std::vector<std::int32_t> symbols_of(std::string_view piece) const;
  std::vector<std::int32_t> characters_of(std::string_view piece) const;
  std::optional<std::int32_t> find(std::string_view token) const;

  TextMap<std::int32_t> ids_;
  BpeOptions options_;
  MergeTable merges_;
  std::array<std::int32_t, 256> bytes_{};                  // the byte's token; -1: it has no token
  std::unordered_map<char32_t, std::int32_t> characters_;  // tokens of one character
  TextMap<std::int32_t> whole_;                            // for ignore_merges, by the text's bytes
  std::optional<std::int32_t> unknown_;
  bool words_stay_apart_ = false;
};

/// The tokens of pieces seen before. One thread uses it at a time.
class PieceCache {
 public:
  /// Appends the tokens of `piece` by `bpe`, always the same one.
  void encode(const Bpe& bpe, std::string_view piece, std::vector<std::int32_t>& tokens);

 private:
  static constexpr std::size_t kMostPieces = 1 << 17;
  static constexpr std::size_t kLongestPiece = 64;  // bytes; longer ones seldom come again

  struct Entry {
    std::uint32_t first, count;  // in tokens_
  };
  TextMap<Entry> entries_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace tessera
