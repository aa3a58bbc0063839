#include "tools/data/teacher_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/hash.h"

namespace tessera {
namespace {

using Header = std::array<std::int32_t, TeacherFile::kHeaderBytes / 4>;
constexpr std::int32_t kMagic = 20261129, kVersion = 1;
constexpr std::int64_t kPiece = 1 << 20;  // tokens read at a time
constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 31;
/// Bounds the bytes of all records to 63 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

std::int64_t number_at(const Header& header, std::size_t i) {
  return std::bit_cast<std::int64_t>(std::array{header[i], header[i + 1]});
}

Header header_of(const TeacherHeader& from) {
  const auto tokens = std::bit_cast<std::array<std::int32_t, 2>>(from.tokens);
  const auto hash = std::bit_cast<std::array<std::int32_t, 2>>(from.hash);
  return {kMagic,
          kVersion,
          static_cast<std::int32_t>(from.top_k),
          static_cast<std::int32_t>(from.vocab_size),
          tokens[0],
          tokens[1],
          hash[0],
          hash[1]};
}

void check_limits(const TeacherHeader& header, const std::string& path) {
  check(header.top_k >= 1 && header.top_k <= kMostPlaces,
        "{}: {} places for each token in the header; expected 1 to {}", path, header.top_k,
        kMostPlaces);
  check(header.vocab_size >= 1 && header.vocab_size < kLargestVocabulary,
        "{}: the header claims a vocabulary of {} tokens", path, header.vocab_size);
  check(header.tokens >= 0 && header.tokens < kMostTokens, "{}: the header claims {} tokens", path,
        header.tokens);
}

/// Raises Error unless the format allows the record. Sorts its ids.
void check_record(std::span<TokenId> ids, std::span<const float16> log_probabilities,
                  std::int64_t vocab_size, std::int64_t token, const std::string& path) {
  const auto to_float = [](float16 value) { return static_cast<float>(value); };
  for (const float16 value : log_probabilities) {
    check(to_float(value) <= 0.0f,
          "{}: the record of token {} has the log-probability {}; expected 0 at most", path, token,
          to_float(value));
  }
  const auto likelier = [&](float16 a, float16 b) { return to_float(a) > to_float(b); };
  check(std::is_sorted(log_probabilities.begin(), log_probabilities.end(), likelier),
        "{}: the record of token {} is not in falling order", path, token);
  const auto empty = std::ranges::find(log_probabilities, kNoProbability.bits, &float16::bits);
  const std::span<TokenId> used =
      ids.first(static_cast<std::size_t>(empty - log_probabilities.begin()));
  std::sort(used.begin(), used.end());
  const auto twice = std::ranges::adjacent_find(used);
  check(twice == used.end(), "{}: the record of token {} has the id {} twice", path, token,
        twice == used.end() ? 0 : *twice);
  check(used.empty() || used.back() < vocab_size,
        "{}: the record of token {} has the id {}, but the vocabulary has {} tokens", path, token,
        used.empty() ? 0 : used.back(), vocab_size);
}

}  // namespace

std::filesystem::path teacher_file_of(const std::filesystem::path& token_file) {
  std::filesystem::path path = token_file;
  return path.replace_extension(".teacher");
}

std::uint64_t hash_of_tokens(const TokenFile& tokens) {
  Fnv1a hash;
  std::vector<TokenId> piece;
  for (std::int64_t first = 0; first < tokens.size(); first += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, tokens.size() - first)));
    tokens.read(first, piece);
    hash.add(std::as_bytes(std::span(piece)));
  }
  return hash.value();
}

TeacherFile::TeacherFile(const std::filesystem::path& path)
    : file_(std::make_shared<InputFile>(path)) {
  const std::string name = path.string();
  check(file_->size() >= kHeaderBytes,
        "{}: too short for a teacher file: {} bytes, but the header alone has {}", name,
        file_->size(), kHeaderBytes);
  Header header{};
  file_->read(0, std::as_writable_bytes(std::span(header)));
  check(header[0] == kMagic, "{}: not a teacher file: the magic number is {}; expected {}", name,
        header[0], kMagic);
  check(header[1] == kVersion, "{}: the teacher file has version {}; this program reads version {}",
        name, header[1], kVersion);
  header_ = {.top_k = header[2],
             .vocab_size = header[3],
             .tokens = number_at(header, 4),
             .hash = static_cast<std::uint64_t>(number_at(header, 6))};
  check_limits(header_, name);
  const std::int64_t data = file_->size() - kHeaderBytes;
  const std::int64_t expected = header_.tokens * header_.bytes_per_record();
  check(data == expected, "{}: {}: records of {} bytes in the header, {} in the file", name,
        data < expected ? "truncated" : "too long", expected, data);
}

void TeacherFile::read(std::int64_t first, std::int64_t places,
                       const TeacherRecords& records) const {
  const auto all = static_cast<std::size_t>(header_.top_k), kept = static_cast<std::size_t>(places);
  const std::size_t width = static_cast<std::size_t>(bytes_per_token(header_.vocab_size)) * all;
  const auto bytes_of_record = static_cast<std::size_t>(header_.bytes_per_record());
  const std::size_t count = records.ids.size() / kept;
  std::vector<std::byte> bytes(count * bytes_of_record);
  file_->read(kHeaderBytes + first * header_.bytes_per_record(), bytes);
  std::vector<std::uint16_t> narrow(all);
  std::vector<TokenId> ids(all);
  std::vector<float16> values(all);
  for (std::size_t n = 0; n < count; ++n) {
    const std::byte* const record = bytes.data() + n * bytes_of_record;
    if (width == all * sizeof(TokenId)) {
      std::memcpy(ids.data(), record, width);
    } else {
      std::memcpy(narrow.data(), record, width);
      std::ranges::copy(narrow, ids.begin());
    }
    std::memcpy(values.data(), record + width, all * sizeof(float16));
    std::copy_n(ids.begin(), kept, records.ids.subspan(n * kept).begin());
    std::copy_n(values.begin(), kept, records.log_probabilities.subspan(n * kept).begin());
    check_record(ids, values, header_.vocab_size, first + static_cast<std::int64_t>(n),
                 path().string());
  }
}

void TeacherFile::check_tokens(const TokenFile& tokens) const {
  check(
      header_.tokens == tokens.size() && header_.hash == hash_of_tokens(tokens),
      "{}: a teacher's answers to other tokens than those of {}; write it again with tessera score",
      path().string(), tokens.path().string());
}

void write_teacher_file(const std::filesystem::path& path, const TeacherHeader& header,
                        const std::function<void(const TakeRecords& take)>& produce) {
  check_limits(header, path.string());
  const auto places = static_cast<std::size_t>(header.top_k);
  write_file_atomically(path, [&](std::ostream& stream) {
    const auto write = [&](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      stream.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    };
    write(header_of(header));
    std::int64_t written = 0;
    produce([&](const TeacherRecords& records) {
      for (std::size_t at = 0; at < records.ids.size(); at += places, ++written) {
        const std::span<const TokenId> ids = records.ids.subspan(at, places);
        if (bytes_per_token(header.vocab_size) == 4) {
          write(ids);
        } else {
          write(std::vector<std::uint16_t>(ids.begin(), ids.end()));
        }
        write(records.log_probabilities.subspan(at, places));
      }
    });
    check(written == header.tokens, "records of {} tokens were handed over; expected {}", written,
          header.tokens);
  });
}

}  // namespace tessera
