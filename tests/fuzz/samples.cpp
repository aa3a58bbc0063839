// Fuzz target: a .jsonl file, as documents and as samples for fine-tuning with a chat template.
#include "tools/data/samples.h"

#include "models/tokenizers/bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tools/data/documents.h"
#include "tools/data/marked_token.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  write_file("lines.jsonl", input);
  const ByteTokenizer bytes;
  std::size_t length = 0;
  reads([&] {
    InputStream lines(folder() / "lines.jsonl");
    DocumentReader().read(
        lines, [&](const std::string& text, bool, const std::string&) { length += text.size(); });
  });
  return reads([&] {
    SampleReader reader(TESSERA_SOURCE_DIR "/examples/finetune/tokenizer");
    InputStream lines(folder() / "lines.jsonl");
    reader.read(lines, [&](const Sample& sample) {
      const auto tokens = encode_sample(sample, bytes, 3);
      const bool other_ends = sample.rejected && sample.rejected->ends_text;
      const int ends = int{sample.chosen.ends_text} + int{other_ends};
      require(tokens.size() == whole_text(sample).size() + static_cast<std::size_t>(ends),
              "every byte is a token");
    });
  });
}

}  // namespace tessera::fuzz
