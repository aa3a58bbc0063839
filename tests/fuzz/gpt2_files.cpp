// Fuzz target: vocab.json and merges.txt. A line "===" separates them in the input.
#include <nlohmann/json.hpp>

#include "models/tokenizers/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  enter_context();
  constexpr std::string_view kSeparator = "\n===\n";
  const std::size_t end = std::min(input.find(kSeparator), input.size());
  write_file("vocab.json", input.substr(0, end));
  write_file("merges.txt", end == input.size() ? "" : input.substr(end + kSeparator.size()));
  return reads([&] {
    const auto tokenizer = read_gpt2_files(folder().path());
    const auto tokens = tokenizer->encode("Hello w\xc3\xb6rld 12\n");
    tokenizer->decode(tokens);
  });
}

}  // namespace tessera::fuzz
