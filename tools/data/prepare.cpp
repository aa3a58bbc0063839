#include "tools/data/prepare.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "models/hub.h"
#include "models/tokenizers/bytes.h"
#include "models/tokenizers/chars.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "runtime/json.h"
#include "tools/data/document_encoder.h"
#include "tools/data/documents.h"
#include "tools/data/input_files.h"
#include "tools/data/odd_documents.h"
#include "tools/data/samples.h"
#include "tools/data/splitting.h"
#include "tools/data/token_spool.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// A folder inside `target` for files that are not complete. A program that is killed leaves it there.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path target)
      : target_(std::move(target)), path_(target_ / ".partial") {
    std::error_code code;
    made_target_ = !fs::exists(target_, code);
    make_writable_directory(target_);
    make_writable_directory(path_);
  }
  ~PartialFolder() {
    if (kept_) return;
    std::error_code code;
    fs::remove_all(path_, code);
    if (made_target_) fs::remove(target_, code);  // if it is empty
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// Leaves the folder for a later program.
  void keep() { kept_ = true; }

  void move_out(const std::string& name) const {
    std::error_code code;
    fs::rename(path_ / name, target_ / name, code);
    check(!code, "cannot write {}: {}", (target_ / name).string(), code.message());
  }

 private:
  fs::path target_, path_;
  bool made_target_ = false, kept_ = false;
};

/// Removes the token and mark files of earlier data that `names` does not have.
void remove_other_shards(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<fs::path> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const std::string token_file = entry.path().extension() == ".marks"
                                       ? entry.path().filename().replace_extension(".bin").string()
                                       : name;
    const bool is_shard = is_shard_of("train", token_file) || is_shard_of("val", token_file);
    if (is_shard && std::find(names.begin(), names.end(), name) == names.end()) {
      others.push_back(entry.path());
    }
  }
  std::error_code code;
  for (const fs::path& other : others) fs::remove(other, code);
}

/// The inputs of the training or the validation set.
struct Inputs {
  std::vector<fs::path> files;
  std::int64_t bytes = 0;
};

Inputs inputs_of(const std::vector<fs::path>& paths) {
  Inputs inputs{.files = find_text_files(paths)};
  for (const fs::path& file : inputs.files) {
    check(fs::is_regular_file(file), "{} is not a file", file.string());
    inputs.bytes += static_cast<std::int64_t>(fs::file_size(file));
  }
  check(inputs.bytes > 0, "the input is empty: {}", paths.front().string());
  return inputs;
}

/// All characters of all documents.
CharTokenizer characters_of(const DocumentReader& reader, const std::vector<const Inputs*>& all) {
  std::string seen;  // each character once, so far
  for (const Inputs* inputs : all) {
    for (const fs::path& file : inputs->files) {
      InputStream stream(file, reader.keys);
      reader.read(stream, [&](const std::string& text, bool, const std::string&) {
        const CharTokenizer known = CharTokenizer::from_text(seen + text);
        seen.clear();
        for (std::int32_t id = 0; id < known.vocab_size(); ++id) seen += known.spelling(id);
      });
    }
  }
  check(!seen.empty(), "the documents have no text");
  return CharTokenizer::from_text(seen);
}

/// The end-of-text token that the options ask for, if any.
std::optional<std::int32_t> end_of_text_of(const Tokenizer& tokenizer, const std::string& asked) {
  if (asked == "none") return std::nullopt;
  const bool automatic = asked == "auto";
  const std::vector<std::string> names =
      automatic ? std::vector<std::string>{"<|endoftext|>", "<|end_of_text|>", "</s>"}
                : std::vector<std::string>{asked};
  for (const std::string& name : names) {
    for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const auto token = static_cast<std::int32_t>(id);
      if (tokenizer.spelling(token) == name) return token;
    }
  }
  check(automatic, "the tokenizer has no token {} to end a document with", excerpt(asked));
  return std::nullopt;
}

/// "bytes", "chars", or the folder that has the tokenizer: the one that is named, or that of a model.
std::string find_tokenizer(const std::string& name) {
  if (name == "bytes" || name == "chars" || Tokenizer::exists(name)) return name;
  const fs::path of_run = fs::path(name) / "model";
  if (Tokenizer::exists(of_run)) return of_run.string();
  return !fs::exists(name) && is_hub_name(name) ? hub_snapshot(name).string() : name;
}

/// Reads, encodes and spools documents.
class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options)
      : options_(options), train_(inputs_of(options.inputs)), samples_(options.tokenizer) {
    if (!options.val_inputs.empty()) val_ = inputs_of(options.val_inputs);
    reader_.keys = options.keys;
    reader_.utf8 = options.tokenizer != "bytes";
    reader_.left_out = [](const std::string&) {};
    // The parts of a text need not be tokens' ends while characters are collected.
    reader_.find_cut = [](std::string_view text) { return text.rfind('\n') + 1; };
    tokenizer_ = make_tokenizer();
    reader_.find_cut = [this](std::string_view text) { return find_cut(text, *tokenizer_); };
    reader_.left_out = [this](const std::string& place) { odd_.add_invalid(place); };
    end_of_text_ = end_of_text_of(*tokenizer_, options.end_of_text);
  }

  Manifest run() {
    PartialFolder partial(options_.out);
    TokenSpool train = spool(train_, "train", partial);
    std::optional<TokenSpool> val;
    if (val_) val.emplace(spool(*val_, "val", partial));
    Manifest manifest{.tokenizer = options_.tokenizer, .vocab_size = tokenizer_->vocab_size()};
    for (const TokenSpool* spool : {&train, val ? &*val : nullptr}) {
      if (spool == nullptr) continue;
      manifest.inputs.insert(manifest.inputs.end(), spool->done().begin(), spool->done().end());
    }
    write(partial, train, val ? &*val : nullptr, manifest);
    if (!options_.report) return manifest;
    for (const std::string& line : odd_.lines(options_.drop_repeated)) options_.report(line);
    return manifest;
  }

 private:
  std::unique_ptr<Tokenizer> make_tokenizer() const {
    const std::string& kind = options_.tokenizer;
    if (kind == "bytes") return std::make_unique<ByteTokenizer>();
    if (kind != "chars") {
      check(fs::is_directory(kind),
            "unknown tokenizer '{}': choose bytes, chars, or a folder with tokenizer.json", kind);
      return Tokenizer::load(kind);
    }
    std::vector<const Inputs*> all = {&train_};
    if (val_) all.push_back(&*val_);
    return std::make_unique<CharTokenizer>(characters_of(reader_, all));
  }

  /// Everything that the tokens depend on but the input files.
  std::string settings() const {
    Fnv1a hash;
    for (std::int64_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      hash.add(tokenizer_->spelling(static_cast<std::int32_t>(id)));
      hash.add_byte(0);
    }
    std::string text =
        fmt::format("{} {:016x} {}", options_.tokenizer, hash.value(), end_of_text_.value_or(-1));
    for (const std::string& key : options_.keys) text += " " + key;
    if (options_.drop_repeated) text += " without repeated";
    return options_.answers_only ? text + " answers only" : text;
  }

  TokenSpool spool(const Inputs& inputs, const std::string& set, PartialFolder& partial) {
    TokenSpool spool(partial.path() / set, settings(), inputs.files);
    for (const Manifest::File& file : spool.done()) progress_.bytes += file.bytes;
    progress_.all_bytes = train_.bytes + (val_ ? val_->bytes : 0);
    DocumentEncoder encoder(*tokenizer_, [&](std::span<const std::int32_t> tokens, bool ends) {
      spool.append(tokens);
      if (!ends) return;
      if (end_of_text_ && !options_.answers_only) spool.append({&*end_of_text_, 1});
      spool.end_document(hashes_.front());
      hashes_.pop_front();
    });
    spool.for_each_hash([&](std::uint64_t hash) { odd_.add_earlier(hash); });
    try {
      while (spool.done().size() < inputs.files.size()) {
        add_file(inputs.files[spool.done().size()], encoder, spool);
      }
    } catch (const Error&) {
      if (!spool.done().empty()) partial.keep();  // for a call after the file has been mended
      throw;
    }
    return spool;
  }

  void add_file(const fs::path& file, DocumentEncoder& encoder, TokenSpool& spool) {
    const std::int64_t before = progress_.bytes;
    InputStream stream(file, options_.answers_only ? kSampleKeys : options_.keys);
    const auto report = [&] {
      progress_.bytes = before + stream.consumed();
      progress_.tokens = spool.tokens();
      if (options_.progress) options_.progress(progress_);
    };
    if (options_.answers_only) {
      samples_.read(stream, [&](Sample sample) {
        odd_.add_text(whole_text(sample));
        if (keeps_document(sample.place)) encoder.add(std::move(sample), end_of_text_);
        report();
      });
    } else if (options_.drop_repeated && !comes_whole(stream.kind())) {
      // Its parts would be encoded before it is known whether the whole is repeated.
      InputStream first_pass(file);
      for (std::string text; first_pass.append_to(text, kBlockBytes); text.clear()) {
        odd_.add_text(text);
      }
      if (keeps_document(file.string())) {
        reader_.read(stream, [&](std::string text, bool ends, const std::string&) {
          encoder.add(std::move(text), ends);
          report();
        });
      }
    } else {
      reader_.read(stream, [&](std::string text, bool ends, const std::string& place) {
        odd_.add_text(text);
        if (!ends || keeps_document(place)) encoder.add(std::move(text), ends);
        report();
      });
    }
    encoder.flush();
    spool.end_file(file);
    progress_.bytes = before + spool.done().back().bytes;
  }

  /// Ends a document, and says whether it is one to encode.
  bool keeps_document(const std::string& place) {
    const std::uint64_t hash = odd_.end_document(place);
    if (options_.drop_repeated && odd_.is_repeated()) return false;
    hashes_.push_back(hash);
    return true;
  }

  ValidationSplit split() const {
    return options_.answers_only ? ValidationSplit::documents : options_.split;
  }

  void write(const PartialFolder& partial, TokenSpool& train, TokenSpool* val,
             Manifest& manifest) const {
    const TokenSets sets = val != nullptr ? TokenSets{all_tokens(train), all_tokens(*val)}
                                          : split_tokens(train, split(), options_.val_fraction);
    manifest.train_tokens = sets.train.tokens;
    manifest.val_tokens = sets.val.tokens;
    std::vector<std::string> names;
    for (const auto& [set, name] : {std::pair(&sets.train, "train"), {&sets.val, "val"}}) {
      const auto written = write_shards(*set, partial.path(), name, options_.shard_tokens,
                                        manifest.vocab_size, options_.answers_only);
      names.insert(names.end(), written.begin(), written.end());
    }
    for (const std::string& name : names) {
      manifest.outputs.push_back(describe_file(partial.path() / name, name));
    }
    tokenizer_->save(partial.path());
    write_manifest(partial.path(), manifest);

    // An earlier manifest does not describe the files that follow, and its files are no part of this set.
    std::error_code code;
    fs::remove(options_.out / Manifest::kFileName, code);
    remove_other_shards(options_.out, names);
    for (const char* name : {Tokenizer::kFileName, Tokenizer::kConfigName, Manifest::kFileName}) {
      names.emplace_back(name);
    }
    for (const std::string& name : names) partial.move_out(name);
  }

  const PrepareOptions& options_;
  const Inputs train_;
  std::optional<Inputs> val_;
  DocumentReader reader_;
  SampleReader samples_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<std::int32_t> end_of_text_;
  PrepareProgress progress_;
  OddDocuments odd_;
  /// The hashes of documents that are not encoded yet.
  std::deque<std::uint64_t> hashes_;
};

}  // namespace

Manifest prepare(const PrepareOptions& options) {
  check(!options.inputs.empty(), "prepare needs at least one input file; name it with --input");
  check(options.val_fraction >= 0.0 && options.val_fraction < 1.0,
        "the validation fraction is {}; expected at least 0 and below 1", options.val_fraction);
  check(!options.answers_only || options.split != ValidationSplit::tails,
        "samples cannot be split at their tails; split by documents");
  check(options.shard_tokens >= 1, "a token file of at most {} tokens holds none",
        options.shard_tokens);
  RankContext rank;
  const ContextGuard guard(rank);
  PrepareOptions found = options;
  found.tokenizer = find_tokenizer(options.tokenizer);
  return Preparation(found).run();
}

}  // namespace tessera
