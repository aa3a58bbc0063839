#include "models/tokenizers/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "models/tokenizers/bpe_merge.h"
#include "models/tokenizers/byte_spelling.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/json.h"

namespace tessera {
namespace {

constexpr char32_t kWordStart = 0x2581;

/// Whether a kWordStart follows another character in the text.
bool holds_word_boundary(std::string_view text) {
  char32_t before = kWordStart;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    if (point.value == kWordStart && before != kWordStart) return true;
    before = point.value;
    i += point.bytes;
  }
  return false;
}

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t mixed = key * 0x9e3779b97f4a7c15u;
  std::size_t slot = (mixed ^ (mixed >> 32)) & mask;
  while (slots_[slot].key != kFree && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

Bpe::Bpe(TextMap<std::int32_t> ids, const Merges& merges, const BpeOptions& options)
    : ids_(std::move(ids)), options_(options), merges_(merges.size()) {
  words_stay_apart_ = !options.byte_level && !options.ignore_merges && find("\u2581").has_value();
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto id_of = [&](const std::string& token) {
      const auto id = find(token);
      if (id) return *id;
      fail("merge {} ({} {}) needs the token {}, which the vocabulary lacks", rank,
           excerpt(merges[rank].first), excerpt(merges[rank].second), excerpt(token));
    };
    const auto& [left, right] = merges[rank];
    const std::string merged = left + right;
    const std::int32_t left_id = id_of(left), right_id = id_of(right);
    merges_.insert(left_id, right_id, {static_cast<std::int32_t>(rank), id_of(merged)});
    if (words_stay_apart_ && holds_word_boundary(merged)) words_stay_apart_ = false;
  }
  if (options.unknown) {
    unknown_ = find(*options.unknown);
    check(unknown_.has_value(), "the vocabulary lacks the token of unknown characters, {}",
          excerpt(*options.unknown));
  }
  bytes_.fill(-1);
  if (options.byte_level) {
    index_bytes();
  } else {
    index_characters();
  }
}

void Bpe::index_bytes() {
  check(!options_.byte_fallback, "a byte-level vocabulary needs no byte_fallback");
  for (const auto& [token, id] : ids_) {
    const auto bytes = bytes_of_spelling(token);
    if (!bytes) continue;  // no text becomes this token
    if (bytes->size() == 1) bytes_[static_cast<unsigned char>(bytes->front())] = id;
    if (options_.ignore_merges) whole_.emplace(*bytes, id);
  }
}

void Bpe::index_characters() {
  for (const auto& [token, id] : ids_) {
    if (token.empty()) continue;
    const CodePoint point = code_point_at(token, 0);
    if (point.bytes == token.size()) characters_.emplace(point.value, id);
  }
  if (options_.ignore_merges) whole_ = ids_;
  if (!options_.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = find(fmt::format("<0x{:02X}>", byte));
    if (id) bytes_[static_cast<std::size_t>(byte)] = *id;
  }
}

std::optional<std::int32_t> Bpe::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& tokens) const {
  if (options_.ignore_merges) {
    if (const auto found = whole_.find(piece); found != whole_.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  std::vector<std::int32_t> symbols = symbols_of(piece);
  check(symbols.size() < std::numeric_limits<std::uint32_t>::max(),
        "a piece of {} bytes is too long to tokenize", piece.size());
  merge_symbols(merges_, symbols);
  tokens.insert(tokens.end(), symbols.begin(), symbols.end());
}

std::vector<std::int32_t> Bpe::symbols_of(std::string_view piece) const {
  if (!options_.byte_level) return characters_of(piece);
  std::vector<std::int32_t> symbols;
  symbols.reserve(piece.size());
  bool after_unknown = false;
  for (const char byte : piece) {
    const std::int32_t id = bytes_[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unknown_ && !(options_.fuse_unknown && after_unknown)) {
      symbols.push_back(*unknown_);
    }
    after_unknown = id < 0;
  }
  return symbols;
}

/// An unknown character's token waits until the next known one, as in Hugging Face's: tokens of
/// bytes in between come first.
std::vector<std::int32_t> Bpe::characters_of(std::string_view piece) const {
  std::vector<std::int32_t> symbols;
  symbols.reserve(piece.size());
  bool unknown_waits = false;
  for (std::size_t i = 0; i < piece.size();) {
    const CodePoint point = code_point_at(piece, i);
    const std::string_view bytes = piece.substr(i, point.bytes);
    i += point.bytes;
    const auto known = characters_.find(point.value);
    if (known != characters_.end()) {
      if (unknown_waits) symbols.push_back(*unknown_);
      unknown_waits = false;
      symbols.push_back(known->second);
      continue;
    }
    const auto byte_token = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (std::ranges::all_of(bytes, [&](char c) { return byte_token(c) >= 0; })) {
      for (const char c : bytes) symbols.push_back(byte_token(c));
    } else if (unknown_) {
      if (unknown_waits && !options_.fuse_unknown) symbols.push_back(*unknown_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) symbols.push_back(*unknown_);
  return symbols;
}

void PieceCache::encode(const Bpe& bpe, std::string_view piece, std::vector<std::int32_t>& tokens) {
  if (piece.size() > kLongestPiece) return bpe.encode(piece, tokens);
  if (const auto found = entries_.find(piece); found != entries_.end()) {
    const auto first = tokens_.begin() + found->second.first;
    tokens.insert(tokens.end(), first, first + found->second.count);
    return;
  }
  const std::size_t before = tokens.size();
  bpe.encode(piece, tokens);
  if (entries_.size() == kMostPieces) {
    entries_.clear();
    tokens_.clear();
  }
  entries_.emplace(piece, Entry{static_cast<std::uint32_t>(tokens_.size()),
                                static_cast<std::uint32_t>(tokens.size() - before)});
  tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end());
}

}  // namespace tessera
