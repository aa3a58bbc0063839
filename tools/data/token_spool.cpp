#include "tools/data/token_spool.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokensFile = "tokens";
constexpr const char* kEndsFile = "ends";
constexpr const char* kHashesFile = "hashes";
constexpr const char* kLinesFile = "done.jsonl";
constexpr std::int64_t kTokenBytes = 4, kEndBytes = 8, kHashBytes = 8;
constexpr std::int64_t kEndsAtATime = 1 << 16;

void check_written(const std::ios& stream, const fs::path& folder) {
  check(stream.good(), "cannot write to {}: {}", folder.string(),
        std::generic_category().message(errno != 0 ? errno : EIO));
}

/// Opens a file of numbers and cuts it to so many bytes.
std::fstream open_cut(const fs::path& path, std::int64_t bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app).close();  // creates it
  std::error_code code;
  fs::resize_file(path, static_cast<std::uintmax_t>(bytes), code);
  check(!code, "cannot write {}: {}", path.string(), code.message());
  std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(0, std::ios::end);
  check_written(stream, path.parent_path());
  return stream;
}

template <typename T>
void read_numbers(std::fstream& stream, const fs::path& folder, std::int64_t first,
                  std::span<T> numbers) {
  stream.seekg(first * static_cast<std::int64_t>(sizeof(T)));
  stream.read(reinterpret_cast<char*>(numbers.data()),
              static_cast<std::streamsize>(numbers.size_bytes()));
  check(stream.good(), "cannot read the tokens in {} again", folder.string());
}

}  // namespace

TokenSpool::TokenSpool(const fs::path& folder, const std::string& settings,
                       const std::vector<fs::path>& inputs)
    : folder_(folder) {
  make_writable_directory(folder_);
  load(settings, inputs);
  tokens_ = open_cut(folder_ / kTokensFile, kTokenBytes * totals_.tokens);
  ends_ = open_cut(folder_ / kEndsFile, kEndBytes * totals_.documents);
  hashes_ = open_cut(folder_ / kHashesFile, kHashBytes * totals_.documents);
  lines_.open(folder_ / kLinesFile, std::ios::binary | std::ios::trunc);
  write_line(nlohmann::json(settings).dump());
  for (const std::string& line : done_lines_) write_line(line);
  flush();
}

void TokenSpool::load(const std::string& settings, const std::vector<fs::path>& inputs) {
  const fs::path path = folder_ / kLinesFile;
  std::ifstream stream(path, std::ios::binary);
  std::string line;
  if (!std::getline(stream, line) || line != nlohmann::json(settings).dump()) return;
  for (const fs::path& input : inputs) {
    if (!std::getline(stream, line)) return;
    const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object()) return;  // a killed program wrote a part of it
    try {
      if (!take_over(JsonEntries(entry), input)) return;
    } catch (const Error& error) {
      fail("{}:{}: the file is damaged: {}; run the command again, which encodes all files",
           path.string(), done_.size() + 2, error.what());
    }
    done_lines_.push_back(line);
  }
}

bool TokenSpool::take_over(const JsonEntries& entry, const fs::path& input) {
  const Manifest::File file = describe_file(input, input.string());
  const bool same = entry.text("path") == file.path && entry.integer("bytes") == file.bytes &&
                    entry.checksum("fnv1a_64") == file.checksum;
  if (!same) return false;
  const auto held = [&](const char* name, std::int64_t width) {
    std::error_code code;
    const std::uintmax_t bytes = fs::file_size(folder_ / name, code);
    return code ? 0 : static_cast<std::int64_t>(bytes) / width;
  };
  totals_ = {entry.integer("tokens", totals_.tokens, held(kTokensFile, kTokenBytes)),
             entry.integer("documents", totals_.documents,
                           std::min(held(kEndsFile, kEndBytes), held(kHashesFile, kHashBytes)))};
  done_.push_back(file);
  return true;
}

void TokenSpool::append(std::span<const std::int32_t> tokens) {
  tokens_.write(reinterpret_cast<const char*>(tokens.data()),
                static_cast<std::streamsize>(tokens.size_bytes()));
  totals_.tokens += static_cast<std::int64_t>(tokens.size());
  check_written(tokens_, folder_);
}

void TokenSpool::end_document(std::uint64_t hash) {
  ends_.write(reinterpret_cast<const char*>(&totals_.tokens), kEndBytes);
  hashes_.write(reinterpret_cast<const char*>(&hash), kHashBytes);
  ++totals_.documents;
  check_written(ends_, folder_);
  check_written(hashes_, folder_);
}

void TokenSpool::end_file(const fs::path& input) {
  done_.push_back(describe_file(input, input.string()));
  write_line(nlohmann::json({{"path", done_.back().path},
                             {"bytes", done_.back().bytes},
                             {"fnv1a_64", hexadecimal(done_.back().checksum)},
                             {"tokens", totals_.tokens},
                             {"documents", totals_.documents}})
                 .dump());
  flush();
}

void TokenSpool::for_each_document(
    const std::function<void(std::int64_t first, std::int64_t last)>& take) {
  std::vector<std::int64_t> ends;
  std::int64_t first = 0;
  for (std::int64_t d = 0; d < totals_.documents; d += kEndsAtATime) {
    ends.resize(static_cast<std::size_t>(std::min(kEndsAtATime, totals_.documents - d)));
    read_numbers(ends_, folder_, d, std::span(ends));
    for (const std::int64_t last : ends) {
      check(first <= last && last <= totals_.tokens,
            "{}: the file is damaged: a document from token {} to {} of {}; run the command again, "
            "which encodes all files",
            (folder_ / kEndsFile).string(), first, last, totals_.tokens);
      take(first, last);
      first = last;
    }
  }
}

void TokenSpool::for_each_hash(const std::function<void(std::uint64_t hash)>& take) {
  std::vector<std::uint64_t> hashes;
  for (std::int64_t d = 0; d < totals_.documents; d += kEndsAtATime) {
    hashes.resize(static_cast<std::size_t>(std::min(kEndsAtATime, totals_.documents - d)));
    read_numbers(hashes_, folder_, d, std::span(hashes));
    for (const std::uint64_t hash : hashes) take(hash);
  }
  hashes_.seekp(0, std::ios::end);
}

void TokenSpool::read(std::int64_t first, std::span<TokenId> tokens) {
  read_numbers(tokens_, folder_, first, tokens);
}

void TokenSpool::write_line(const std::string& line) {
  lines_ << line << '\n';
}

void TokenSpool::flush() {
  for (std::ostream* const stream :
       std::initializer_list<std::ostream*>{&tokens_, &ends_, &hashes_, &lines_}) {
    stream->flush();
    check_written(*stream, folder_);
  }
}

}  // namespace tessera
