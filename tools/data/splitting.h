// From the tokens of all documents to token files for training and validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/data/prepare.h"
#include "tools/data/token_spool.h"

namespace tessera {

/// A part of a spool's tokens: ranges of them, in order.
struct TokenSet {
  using TakeRange = std::function<void(std::int64_t first, std::int64_t last)>;

  TokenSpool* spool = nullptr;
  std::int64_t tokens = 0;
  std::function<void(const TakeRange& take)> for_each_range;
};

struct TokenSets {
  TokenSet train, val;
};

TokenSet all_tokens(TokenSpool& spool);
/// Raises Error if no token is left to train on.
TokenSets split_tokens(TokenSpool& spool, ValidationSplit split, double val_fraction);

/// Writes `<name>.bin`, or `<name>_000000.bin` and so on if there are more than `shard_tokens`.
/// With `marks`, the spool's tokens have marks (marked_token.h), which go to a mark file next to each.
/// Returns the names.
std::vector<std::string> write_shards(const TokenSet& set, const std::filesystem::path& folder,
                                      const std::string& name, std::int64_t shard_tokens,
                                      std::int64_t vocab_size, bool marks = false);

}  // namespace tessera
