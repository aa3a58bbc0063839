// A libFuzzer target: any bytes as a tokenizer.json, and as a text for it.
//
// The input is the file, a zero byte, and the text. An Error is a good outcome.
#include <string>
#include <string_view>

#include "models/tokenizers/tokenizer_json.h"
#include "runtime/error.h"
#include "runtime/json.h"

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string file(input.substr(0, end));
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  try {
    const auto tokenizer = read_tokenizer_json(parse_json(file), file);
    const auto tokens = tokenizer->with_special_tokens(tokenizer->encode(text));
    tokenizer->decode(tokens);
    tokenizer->encode_plain(text);
  } catch (const Error&) {
  }
  return 0;
}
