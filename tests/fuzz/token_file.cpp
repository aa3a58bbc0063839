// Fuzz target: a token file, and the same bytes as the mark file of a good one.
#include "tests/fuzz/fuzz.h"
#include "tools/data/loader.h"
#include "tools/data/manifest.h"

namespace tessera::fuzz {
namespace {

constexpr std::int64_t kVocabulary = 300, kLength = 4;

/// Loads an epoch of each kind of rows.
void load(const TokenCorpus& corpus) {
  for (const RowKind kind : {RowKind::windows, RowKind::packed, RowKind::padded}) {
    const TokenLoader loader(corpus, kLength, SampleOrder::shuffled, 1, 0, kind);
    const std::int64_t rows = loader.samples();
    const Batch batch = loader.load(1, 0, rows, rows);
    std::int64_t valid = 0;
    for (const std::int32_t target : batch.targets.to_vector<std::int32_t>()) {
      require(target < kVocabulary, "a token is in the vocabulary");
      valid += target >= 0 ? 1 : 0;
    }
    require(valid == loader.loss_terms(1, 0, rows, rows), "valid targets are counted");
  }
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  write_file("tokens.bin", input);
  write_token_file(folder() / "marked.bin", std::vector<TokenId>(12, 7));
  write_file("marked.marks", input);
  const bool marks = reads([&] { load(TokenCorpus::open(folder() / "marked.bin", kVocabulary)); });
  return reads([&] { load(TokenCorpus::open(folder() / "tokens.bin", kVocabulary)); }) || marks;
}

}  // namespace tessera::fuzz
