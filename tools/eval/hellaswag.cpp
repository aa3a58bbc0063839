#include "tools/eval/hellaswag.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

constexpr std::int32_t kMagic = 20240522;
constexpr std::int32_t kVersion = 1;
constexpr std::size_t kHeaderNumbers = 256;
constexpr std::uint16_t kStart = 65535;

/// Reads numbers of a question one after another.
class Reader {
 public:
  Reader(std::span<const std::uint16_t> numbers, const std::string& place, std::int64_t vocab_size)
      : numbers_(numbers), place_(place), vocab_size_(vocab_size) {}

  std::uint16_t next() {
    check(!numbers_.empty(), "{}: the question is cut off", place_);
    const std::uint16_t number = numbers_.front();
    numbers_ = numbers_.subspan(1);
    return number;
  }
  /// A length, and so many tokens: at least one.
  std::vector<std::int32_t> tokens() {
    const std::size_t count = next();
    check(count > 0 && count <= numbers_.size(), "{}: {} tokens where {} numbers are left", place_,
          count, numbers_.size());
    const std::vector<std::int32_t> tokens(numbers_.begin(),
                                           numbers_.begin() + static_cast<std::ptrdiff_t>(count));
    numbers_ = numbers_.subspan(count);
    const std::int32_t most = *std::max_element(tokens.begin(), tokens.end());
    check(most < vocab_size_, "{}: token {} is outside the model's vocabulary of {}", place_, most,
          vocab_size_);
    return tokens;
  }
  bool at_end() const { return numbers_.empty(); }

 private:
  std::span<const std::uint16_t> numbers_;
  const std::string& place_;
  std::int64_t vocab_size_;
};

/// A question, from its label on.
Question read_question(Reader& reader, const std::string& place) {
  Question question;
  question.label = reader.next();
  const std::size_t endings = reader.next();
  check(endings >= 2 && endings <= 64 && question.label < endings,
        "{}: label {} of {} endings; expected 2 to 64 endings", place, question.label, endings);
  question.context = reader.tokens();
  for (std::size_t i = 0; i < endings; ++i) question.endings.push_back(reader.tokens());
  check(reader.at_end(), "{}: numbers follow the last ending", place);
  return question;
}

std::int64_t questions_in(const std::filesystem::path& path, const std::string& bytes) {
  std::int32_t header[kHeaderNumbers] = {};
  check(bytes.size() >= sizeof header && bytes.size() % 2 == 0,
        "{}: {} bytes are no file of questions", path.string(), bytes.size());
  std::memcpy(header, bytes.data(), sizeof header);
  check(header[0] == kMagic && header[1] == kVersion,
        "{}: no file of questions: magic number {} and version {}; expected {} and {}, as llm.c's "
        "dev/data/hellaswag.py writes them",
        path.string(), header[0], header[1], kMagic, kVersion);
  check(header[2] >= 1, "{}: {} questions", path.string(), header[2]);
  return header[2];
}

}  // namespace

std::vector<Question> read_questions(const std::filesystem::path& path, std::int64_t vocab_size) {
  const std::string bytes = read_text_file(path);
  const std::int64_t count = questions_in(path, bytes);
  std::vector<std::uint16_t> numbers((bytes.size() - 4 * kHeaderNumbers) / 2);
  std::memcpy(numbers.data(), bytes.data() + 4 * kHeaderNumbers, 2 * numbers.size());
  std::span<const std::uint16_t> left = numbers;
  std::vector<Question> questions;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string place = fmt::format("{}: question {}", path.string(), i);
    check(left.size() >= 3 && left[0] == kStart, "{}: it does not begin with {}", place, kStart);
    const std::size_t size = left[1] / 2;
    check(left[1] % 2 == 0 && size >= 3 && size <= left.size(), "{}: {} bytes where {} are left",
          place, left[1], 2 * left.size());
    check(left[2] == (i & 0xffff), "{}: its index is {}", place, left[2]);
    Reader reader(left.subspan(3, size - 3), place, vocab_size);
    questions.push_back(read_question(reader, place));
    left = left.subspan(size);
  }
  check(left.empty(), "{}: {} bytes follow the last of {} questions", path.string(),
        2 * left.size(), count);
  return questions;
}

}  // namespace tessera
