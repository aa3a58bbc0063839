#include "tools/data/splitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/check.h"
#include "runtime/integer.h"
#include "tools/data/marked_token.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kManyDocuments = 100;
constexpr std::int64_t kPiece = 1 << 20;  // tokens copied at a time

/// Whether a document is for validation: one of every 1 / fraction, from the first such stretch on.
bool is_chosen(std::int64_t document, double fraction) {
  const auto chosen_before = [&](std::int64_t count) {
    return std::floor(static_cast<double>(count) * fraction);
  };
  return chosen_before(document + 1) > chosen_before(document);
}

/// The range of a document's tokens that is in a set.
using Choose = std::function<std::pair<std::int64_t, std::int64_t>(
    std::int64_t document, std::int64_t first, std::int64_t last)>;

TokenSet chosen_tokens(TokenSpool& spool, const Choose& choose) {
  TokenSet set{.spool = &spool};
  set.for_each_range = [&spool, choose](const TokenSet::TakeRange& take) {
    std::int64_t document = 0, begin = 0, end = 0;  // of ranges that follow each other
    spool.for_each_document([&](std::int64_t first, std::int64_t last) {
      const auto [from, to] = choose(document++, first, last);
      if (from == end) {
        end = to;
        return;
      }
      if (end > begin) take(begin, end);
      begin = from;
      end = to;
    });
    if (end > begin) take(begin, end);
  };
  set.for_each_range([&](std::int64_t first, std::int64_t last) { set.tokens += last - first; });
  return set;
}

/// Hands over tokens [first, last) of a set.
void copy_tokens(const TokenSet& set, std::int64_t first, std::int64_t last,
                 const TakeTokens& take) {
  std::vector<TokenId> piece;
  std::int64_t before = 0;  // tokens of the set before the range
  set.for_each_range([&](std::int64_t range_first, std::int64_t range_last) {
    const std::int64_t begin = range_first + std::max<std::int64_t>(first - before, 0);
    const std::int64_t end = std::min(range_last, range_first + last - before);
    before += range_last - range_first;
    for (std::int64_t i = begin; i < end; i += kPiece) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, end - i)));
      set.spool->read(i, piece);
      take(piece);
    }
  });
}

void copy_unmarked(const TokenSet& set, std::int64_t first, std::int64_t last,
                   const TakeTokens& take) {
  std::vector<TokenId> tokens;
  copy_tokens(set, first, last, [&](std::span<const TokenId> marked) {
    tokens.resize(marked.size());
    std::ranges::transform(marked, tokens.begin(), without_marks);
    take(tokens);
  });
}

void copy_marks(const TokenSet& set, std::int64_t first, std::int64_t last, const TakeMarks& take) {
  std::vector<TokenMarks> marks;
  copy_tokens(set, first, last, [&](std::span<const TokenId> marked) {
    marks.resize(marked.size());
    std::ranges::transform(marked, marks.begin(), marks_of);
    take(marks);
  });
}

}  // namespace

TokenSet all_tokens(TokenSpool& spool) {
  return chosen_tokens(spool, [](std::int64_t, std::int64_t first, std::int64_t last) {
    return std::pair(first, last);
  });
}

TokenSets split_tokens(TokenSpool& spool, ValidationSplit split, double val_fraction) {
  if (split == ValidationSplit::automatic) {
    split =
        spool.documents() >= kManyDocuments ? ValidationSplit::documents : ValidationSplit::tails;
  }
  // Rounded down, as in nanoGPT's data/shakespeare_char/prepare.py.
  const auto train_end = [=](std::int64_t document, std::int64_t first, std::int64_t last) {
    if (split == ValidationSplit::documents)
      return is_chosen(document, val_fraction) ? first : last;
    const double kept = static_cast<double>(last - first) * (1.0 - val_fraction);
    return first + static_cast<std::int64_t>(kept);
  };
  TokenSets sets;
  sets.train =
      chosen_tokens(spool, [=](std::int64_t document, std::int64_t first, std::int64_t last) {
        return std::pair(first, train_end(document, first, last));
      });
  sets.val =
      chosen_tokens(spool, [=](std::int64_t document, std::int64_t first, std::int64_t last) {
        return std::pair(train_end(document, first, last), last);
      });
  check(sets.train.tokens > 0, "no token is left to train on: {} in all, validation fraction {}",
        spool.tokens(), val_fraction);
  return sets;
}

std::vector<std::string> write_shards(const TokenSet& set, const std::filesystem::path& folder,
                                      const std::string& name, std::int64_t shard_tokens,
                                      std::int64_t vocab_size, bool marks) {
  const std::int64_t shards = std::max<std::int64_t>(1, ceil_div(set.tokens, shard_tokens));
  std::vector<std::string> names;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    names.push_back(shards == 1 ? name + ".bin" : fmt::format("{}_{:06}.bin", name, shard));
    const std::int64_t first = shard * shard_tokens;
    const std::int64_t last = std::min(first + shard_tokens, set.tokens);
    const fs::path path = folder / names.back();
    write_token_file(path, last - first, vocab_size, [&](const TakeTokens& take) {
      marks ? copy_unmarked(set, first, last, take) : copy_tokens(set, first, last, take);
    });
    if (!marks) continue;
    names.push_back(mark_file_of(names.back()));
    write_mark_file(mark_file_of(path), last - first,
                    [&](const TakeMarks& take) { copy_marks(set, first, last, take); });
  }
  return names;
}

}  // namespace tessera
