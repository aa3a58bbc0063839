#include "tools/data/prepare.h"

#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "models/tokenizers/utf8.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "tools/data/token_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// A folder inside `target` where files are written before they move into `target`. The destructor
/// removes the files that are left.
class StagingFolder {
 public:
  explicit StagingFolder(fs::path target)
      : target_(std::move(target)), path_(target_ / ".partial") {
    make_writable_directory(target_);
    std::error_code code;
    fs::remove_all(path_, code);  // left behind by a run that was killed
    make_writable_directory(path_);
  }
  ~StagingFolder() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const fs::path& path() const { return path_; }

  void move_out(const std::string& name) const {
    std::error_code code;
    fs::rename(path_ / name, target_ / name, code);
    check(!code, "cannot write {}: {}", (target_ / name).string(), code.message());
  }

 private:
  fs::path target_;
  fs::path path_;
};

/// The inputs, joined.
struct Sources {
  std::string text;
  std::vector<Manifest::File> files;
};

void check_input(const fs::path& path) {
  const std::string name = path.string();
  check(!fs::is_directory(path), "{} is a folder; name its files: --input {}", name,
        (path / "*").string());
  check(fs::exists(path) || name.find_first_of("*?") == name.npos,
        "there is no file named {}; write the pattern without quotes, so that the shell expands it",
        name);
}

Sources read_sources(const std::vector<fs::path>& paths) {
  Sources sources;
  for (const fs::path& path : paths) {
    check_input(path);
    const std::string text = read_text_file(path);
    Fnv1a checksum;
    checksum.add(text);
    sources.files.push_back(
        {path.string(), static_cast<std::int64_t>(text.size()), checksum.value()});
    sources.text += text;
  }
  check(!paths.empty(), "prepare needs at least one input file; name it with --input");
  check(!sources.text.empty(), "the input is empty: {}", paths.front().string());
  return sources;
}

/// Checks file by file, so that the error can name the file and the byte in it.
void check_utf8(const Sources& sources) {
  std::string_view rest = sources.text;
  for (const Manifest::File& file : sources.files) {
    const std::string_view text = rest.substr(0, static_cast<std::size_t>(file.bytes));
    rest.remove_prefix(text.size());
    try {
      for (std::size_t i = 0; i < text.size();) i += code_point_at(text, i).bytes;
    } catch (const Error& error) {
      fail("{}: {} (--tokenizer bytes)", file.path, error.what());
    }
  }
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const Sources& sources) {
  if (kind == "bytes") return std::make_unique<ByteTokenizer>();
  check(kind == "chars" || fs::is_directory(kind),
        "unknown tokenizer '{}': choose bytes, chars, or a folder with tokenizer.json", kind);
  check_utf8(sources);
  if (kind != "chars") return Tokenizer::load(kind);
  return std::make_unique<CharTokenizer>(CharTokenizer::from_text(sources.text));
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  RankContext rank;
  const ContextGuard guard(rank);
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  return {tokens.begin(), tokens.end()};
}

/// Rounded down, as in nanoGPT's data/shakespeare_char/prepare.py.
std::size_t train_size(std::size_t tokens, double val_fraction) {
  check(val_fraction >= 0.0 && val_fraction < 1.0,
        "the validation fraction is {}; expected at least 0 and below 1", val_fraction);
  const auto train = static_cast<std::size_t>(static_cast<double>(tokens) * (1.0 - val_fraction));
  check(train > 0, "no token is left to train on: {} in all, validation fraction {}", tokens,
        val_fraction);
  return train;
}

void write_folder(const fs::path& folder, const Tokenizer& tokenizer,
                  std::span<const TokenId> train, std::span<const TokenId> val,
                  Manifest& manifest) {
  const StagingFolder staging(folder);
  write_token_file(staging.path() / "train.bin", train, manifest.vocab_size);
  write_token_file(staging.path() / "val.bin", val, manifest.vocab_size);
  for (const char* name : {"train.bin", "val.bin"}) {
    manifest.outputs.push_back(describe_file(staging.path() / name, name));
  }
  tokenizer.save(staging.path());
  write_manifest(staging.path(), manifest);

  // An earlier manifest does not describe the files that follow.
  std::error_code code;
  fs::remove(folder / Manifest::kFileName, code);
  for (const char* name : {"train.bin", "val.bin", Tokenizer::kFileName, Tokenizer::kConfigName,
                           Manifest::kFileName}) {
    staging.move_out(name);
  }
}

}  // namespace

Manifest prepare(const PrepareOptions& options) {
  Sources sources = read_sources(options.inputs);
  const auto tokenizer = make_tokenizer(options.tokenizer, sources);
  const std::vector<TokenId> tokens = encode(*tokenizer, sources.text);
  const auto all = std::span<const TokenId>(tokens);
  const std::size_t split = train_size(all.size(), options.val_fraction);
  Manifest manifest{.tokenizer = options.tokenizer,
                    .vocab_size = tokenizer->vocab_size(),
                    .train_tokens = static_cast<std::int64_t>(split),
                    .val_tokens = static_cast<std::int64_t>(all.size() - split),
                    .inputs = std::move(sources.files)};
  write_folder(options.out, *tokenizer, all.first(split), all.subspan(split), manifest);
  return manifest;
}

}  // namespace tessera
