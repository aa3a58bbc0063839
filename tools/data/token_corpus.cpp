#include "tools/data/token_corpus.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/check.h"
#include "runtime/elementary.h"
#include "runtime/random.h"
#include "runtime/text.h"
#include "tools/data/manifest.h"
#include "tools/data/read_times.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSynthetic = "synthetic:";
constexpr std::array kKinds = {"uniform", "zipf", "copy"};
constexpr std::int64_t kSyntheticTokens = std::int64_t{1} << 31;
constexpr std::uint64_t kCopied = 32;

bool is_synthetic(const fs::path& setting) {
  return setting.string().starts_with(kSynthetic);
}

/// The parts of a setting between commas.
std::vector<std::string> parts_of(const fs::path& setting) {
  const std::string text = setting.string();
  if (fs::exists(setting)) return {text};
  std::vector<std::string> parts;
  for (const std::string_view part : split(text, ',')) {
    if (!part.empty()) parts.emplace_back(part);
  }
  check(!parts.empty(), "the list of token files is empty: '{}'", text);
  return parts;
}

std::vector<fs::path> expanded(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == pattern.npos || fs::exists(pattern)) return {pattern};
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);  // sorted
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  check(status == 0 && !paths.empty(), "no file fits the pattern {}", pattern);
  return paths;
}

}  // namespace

/// A token is a function of its position.
class TokenCorpus::Generator {
 public:
  Generator(std::string_view kind, std::int64_t vocab_size)
      : kind_(kind), vocab_size_(static_cast<std::uint64_t>(vocab_size)), random_(0, "synthetic") {
    check(std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end(),
          "there is no synthetic data named '{}': choose one of {}", kind, fmt::join(kKinds, ", "));
  }

  TokenId at(std::uint64_t position) const {
    if (kind_ == "zipf") return zipf(random_.uniform(position));
    if (kind_ == "copy") position -= position % (2 * kCopied) < kCopied ? 0 : kCopied;
    return static_cast<TokenId>(random_.below(position, vocab_size_));
  }

 private:
  /// The inverse of the distribution function ln(k + 1) / ln(V + 1).
  TokenId zipf(double u) const {
    const double k = exponential(u * logarithm(static_cast<double>(vocab_size_) + 1.0)) - 1.0;
    return static_cast<TokenId>(std::min(static_cast<std::uint64_t>(k), vocab_size_ - 1));
  }

  const std::string kind_;
  const std::uint64_t vocab_size_;
  const RandomStream random_;
};

TokenCorpus::TokenCorpus(TokenFile file)
    : name_(file.path().string()), size_(file.size()), files_{std::move(file)}, begins_{0} {}

TokenCorpus TokenCorpus::open(const fs::path& setting, std::int64_t vocab_size) {
  TokenCorpus corpus;
  corpus.name_ = setting.string();
  if (is_synthetic(setting)) {
    corpus.generator_ = std::make_shared<const Generator>(
        std::string_view(corpus.name_).substr(kSynthetic.size()), vocab_size);
    corpus.size_ = kSyntheticTokens;
    return corpus;
  }
  for (const fs::path& path : token_files_of(setting)) {
    corpus.files_.push_back(open_verified(path, vocab_size));
    corpus.begins_.push_back(corpus.size_);
    corpus.size_ += corpus.files_.back().size();
    const auto marks = open_verified_marks(corpus.files_.back());
    if (marks) corpus.marks_.push_back(*marks);
    check(
        corpus.marks_.empty() || corpus.marks_.size() == corpus.files_.size(),
        "{}: some of these token files have a mark file next to them, others such as {} have not; "
        "prepare all of them the same way",
        setting.string(), marks ? corpus.files_.front().path().string() : path.string());
  }
  return corpus;
}

template <typename Read>
void TokenCorpus::for_each_part(std::int64_t first, std::size_t count, const Read& read) const {
  auto file = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) -
                                       begins_.begin() - 1);
  for (std::size_t begin = 0; begin < count; ++file) {
    const std::int64_t offset = first + static_cast<std::int64_t>(begin) - begins_[file];
    const auto left = static_cast<std::size_t>(files_[file].size() - offset);
    const std::size_t part = std::min(count - begin, left);
    read(file, offset, begin, part);
    begin += part;
  }
}

void TokenCorpus::read(std::int64_t first, std::span<TokenId> tokens) const {
  if (generator_ != nullptr) {
    for (TokenId& token : tokens) token = generator_->at(static_cast<std::uint64_t>(first++));
    return;
  }
  for_each_part(first, tokens.size(),
                [&](std::size_t file, std::int64_t offset, std::size_t begin, std::size_t count) {
                  const ReadTimer timer(files_[file].path());
                  files_[file].read(offset, tokens.subspan(begin, count));
                });
}

void TokenCorpus::read_marks(std::int64_t first, std::span<TokenMarks> marks) const {
  for_each_part(first, marks.size(),
                [&](std::size_t file, std::int64_t offset, std::size_t begin, std::size_t count) {
                  marks_[file].read(offset, marks.subspan(begin, count));
                });
}

void TokenCorpus::open_teachers(std::int64_t top_k, std::int64_t vocab_size) {
  check(!is_generated(), "{} is in no file, so that no teacher file is next to it", name_);
  top_k_ = top_k;
  for (const TokenFile& tokens : files_) {
    const fs::path path = teacher_file_of(tokens.path());
    check(fs::exists(path),
          "{} is missing; write it: tessera score --model TEACHER --data {} --top-k {}",
          path.string(), tokens.path().string(), top_k);
    const TeacherFile& teacher = teachers_.emplace_back(path);
    const TeacherHeader& header = teacher.header();
    check(header.top_k >= top_k,
          "{} has {} tokens of the teacher for each token, and distill.top_k is {}", path.string(),
          header.top_k, top_k);
    check(header.vocab_size <= vocab_size,
          "{}: the teacher's vocabulary has {} tokens, and the model's {}", path.string(),
          header.vocab_size, vocab_size);
    teacher.check_tokens(tokens);
  }
}

void TokenCorpus::read_teachers(std::int64_t first, const TeacherRecords& records) const {
  const auto places = static_cast<std::size_t>(top_k_);
  for_each_part(first, records.ids.size() / places,
                [&](std::size_t file, std::int64_t offset, std::size_t begin, std::size_t count) {
                  const ReadTimer timer(teachers_[file].path());
                  teachers_[file].read(
                      offset, top_k_,
                      {records.ids.subspan(begin * places, count * places),
                       records.log_probabilities.subspan(begin * places, count * places)});
                });
}

std::vector<fs::path> token_files_of(const fs::path& setting) {
  std::vector<fs::path> files;
  for (const std::string& part : parts_of(setting)) {
    const std::vector<fs::path> more = expanded(part);
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

fs::path data_folder_of(const fs::path& setting) {
  if (setting.empty() || is_synthetic(setting)) return {};
  return fs::path(parts_of(setting).front()).parent_path();
}

}  // namespace tessera
