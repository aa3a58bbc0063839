// Splitters: the stages that cut text into the pieces that byte-pair encoding takes one by one.
//
// These are the pre-tokenizers of tokenizer.json. Each stage cuts the pieces of the stage before.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

namespace tessera {

/// A piece of text. It lives during the call that hands it over.
struct Piece {
  std::string_view text;
  /// Whether it is the very beginning of the input.
  bool at_start = false;
};
using PieceSink = std::function<void(const Piece&)>;

class Splitter {
 public:
  virtual ~Splitter() = default;

  /// Whether it changes the text and hands over one piece.
  virtual bool rewrites() const { return false; }
  /// Whether the pieces from a piece's first byte on depend on the text from there on alone. Such
  /// a text may be cut by several threads (cut_range).
  virtual bool forgets() const { return false; }
  /// Hands over the pieces of `text`, none of them empty.
  virtual void cut(const Piece& text, const PieceSink& sink) const = 0;
  /// Hands over the pieces that begin in [begin, end) if one begins at `begin`; returns the end of
  /// the last one. Only for splitters that forget.
  virtual std::size_t cut_range(const Piece& text, std::size_t begin, std::size_t end,
                                const PieceSink& sink) const;
  /// The first place at or after `from` where a piece may begin; a guess for cut_range.
  virtual std::size_t guess(std::string_view text, std::size_t from) const;
};

struct SplitterChain {
  std::vector<std::unique_ptr<Splitter>> stages;
  /// The last stage is ByteLevel: pieces become bytes, not characters.
  bool byte_level = false;
};

/// The stages of tokenizer.json's `pre_tokenizer`: Split, ByteLevel, Metaspace, Digits, Sequence;
/// an empty list for null. Raises Error for other kinds.
SplitterChain make_splitters(const nlohmann::json& description);

/// Cuts before every U+2581 that follows another character (see Bpe::words_stay_apart).
std::unique_ptr<Splitter> make_word_splitter();

}  // namespace tessera
