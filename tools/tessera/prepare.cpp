#include "tools/data/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>

#include "tools/tessera/commands.h"
#include "tools/train/progress.h"

namespace tessera {
namespace {

std::string summary_of(const Manifest& manifest, const std::filesystem::path& out) {
  return fmt::format("{}: {} tokens to train on, {} to validate, vocabulary {} ({}), from {} {}",
                     out.string(), manifest.train_tokens, manifest.val_tokens, manifest.vocab_size,
                     manifest.tokenizer, manifest.inputs.size(),
                     manifest.inputs.size() == 1 ? "file" : "files");
}

/// Draws a bar on standard error, at most ten times a second: "[####    ]  50%  1.9 MiB/s  0:35 left".
class Bar {
 public:
  void operator()(const PrepareProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!first_bytes_) first_bytes_ = progress.bytes;
    if (std::chrono::duration<double>(now - drawn_).count() < 0.1) return;
    drawn_ = now;
    const double seconds = std::chrono::duration<double>(now - begun_).count();
    const double rate = static_cast<double>(progress.bytes - *first_bytes_) / seconds;
    if (rate <= 0.0) return;
    const double share =
        static_cast<double>(progress.bytes) / static_cast<double>(progress.all_bytes);
    const double left = static_cast<double>(progress.all_bytes - progress.bytes) / rate;
    constexpr int kWidth = 20;
    fmt::print(stderr, "\r[{:<{}}] {:3.0f}%  {:.1f} MiB/s  {} left \x1b[K",
               std::string(static_cast<std::size_t>(share * kWidth), '#'), kWidth, 100.0 * share,
               rate / (1 << 20), clock_text(left));
  }
  /// Erases the bar.
  ~Bar() {
    if (drawn_ > begun_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  const Time begun_ = std::chrono::steady_clock::now();
  Time drawn_ = begun_;
  /// Those that an earlier program had encoded.
  std::optional<std::int64_t> first_bytes_;
};

Manifest prepare_with_bar(PrepareOptions options) {
  Bar bar;
  if (::isatty(STDERR_FILENO) == 1) options.progress = std::ref(bar);
  return prepare(options);
}

std::string bytes_chars_or_folder(const std::string& tokenizer) {
  if (tokenizer == "bytes" || tokenizer == "chars") return "";
  if (std::filesystem::is_directory(tokenizer)) return "";
  return fmt::format("expected bytes, chars or a folder; there is no folder {}", tokenizer);
}

}  // namespace

void add_prepare(Command& app) {
  Command command = app.subcommand("prepare", "Turn texts into token files.");
  const auto options = std::make_shared<PrepareOptions>();
  command
      .option("--input", options->inputs,
              "Files and folders: .txt, .md, .json, .jsonl, .yaml and .yml, as they are or as .gz "
              "or .zst; "
              ".parquet, .arrow and .feather; data sets of Hugging Face")
      .required()
      .type("PATH");
  command
      .option("--tokenizer", options->tokenizer,
              "bytes, chars, or a model or folder with a Hugging Face tokenizer")
      .required()
      .type("bytes|chars|MODEL")
      .check(bytes_chars_or_folder);
  command.option("--out", options->out, "Folder for train.bin, val.bin and the tokenizer")
      .required()
      .type("DIR");
  const Option fraction =
      command
          .option("--val-fraction", options->val_fraction,
                  "Share of the documents, or of the end of each, for validation; below 1")
          .range(0.0, 0.999999)
          .type("F")
          .shows_default();
  const auto split = std::make_shared<std::string>("auto");
  command
      .option("--split", *split,
              "Validate on whole documents or on the tails of all; auto: on documents if "
              "there are at least 100")
      .one_of({"auto", "documents", "tails"})
      .type("auto|documents|tails")
      .shows_default();
  command
      .option("--val-input", options->val_inputs,
              "Files and folders to validate on, instead of a share of --input")
      .type("PATH")
      .excludes(fraction);
  command
      .option("--keys", options->keys,
              "Keys of JSON and YAML whose string values are the text; without them the "
              "value of 'text', or else all string values")
      .separated_by_commas()
      .type("KEY,...");
  command
      .option("--end-of-text", options->end_of_text,
              "Token behind every document; auto: <|endoftext|>, <|end_of_text|> or </s>, if "
              "the tokenizer has it")
      .type("auto|none|TOKEN")
      .shows_default();
  command.flag("--answers-only", options->answers_only,
               "The inputs are .jsonl files or tables with messages, prompt and completion, or "
               "chosen and rejected, for fine-tuning; only the answers are trained");
  command.flag("--drop-repeated", options->drop_repeated,
               "Leave out every document whose text an earlier one has");
  command
      .option("--shard-tokens", options->shard_tokens,
              "Most tokens in a file; more are written to train_000000.bin and so on")
      .range(std::int64_t{1}, std::int64_t{1} << 40)
      .type("N")
      .shows_default();
  command.runs([options, split] {
    options->split = enum_from_name<ValidationSplit>(*split);
    std::vector<std::string> odd;
    options->report = [&](const std::string& line) { odd.push_back(line); };
    const Manifest manifest = prepare_with_bar(*options);
    for (const std::string& line : odd) std::cout << line << '\n';
    std::cout << summary_of(manifest, options->out) << std::endl;
  });
}

}  // namespace tessera
