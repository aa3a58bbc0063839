// Byte-pair encoding by hand: the symbols of a word after the first merges of a list.
//
// Run build/bin/merges. docs/tokenizers.md walks through it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/bpe_merge.h"

using namespace tessera;

namespace {

/// A symbol's id is its place here.
const std::vector<std::string> kSymbols = {"l", "o", "w", "e", "r", "s", "lo", "low", "er"};

std::int32_t id_of(std::string_view symbol) {
  return static_cast<std::int32_t>(std::ranges::find(kSymbols, symbol) - kSymbols.begin());
}

/// The first `count` of the merges "l o", "lo w" and "e r".
MergeTable first_merges(int count) {
  const std::vector<std::array<std::string_view, 2>> merges = {{"l", "o"}, {"lo", "w"}, {"e", "r"}};
  MergeTable table(merges.size());
  for (int rank = 0; rank < count; ++rank) {
    const auto& [left, right] = merges[static_cast<std::size_t>(rank)];
    table.insert(id_of(left), id_of(right), {rank, id_of(std::string(left) + std::string(right))});
  }
  return table;
}

}  // namespace

int main() {
  for (const std::string_view word : {"lower", "slower"}) {
    for (int count = 0; count <= 3; ++count) {
      std::vector<std::int32_t> symbols;
      for (const char letter : word) symbols.push_back(id_of({&letter, 1}));
      merge_symbols(first_merges(count), symbols);
      fmt::print("{} merges: ", count);
      for (const std::int32_t id : symbols)
        fmt::print(" {}", kSymbols[static_cast<std::size_t>(id)]);
      fmt::print("   ids {}\n", fmt::join(symbols, " "));
    }
  }
}
