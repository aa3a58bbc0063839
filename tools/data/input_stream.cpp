#include "tools/data/input_stream.h"

#include <utility>

#include "tools/data/table_source.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ByteSource> open(const fs::path& path, const std::vector<std::string>& keys) {
  if (is_table(path)) return make_table_source(path, keys);
  if (path.extension() == ".gz") return make_gzip_source(path);
  if (path.extension() == ".zst") return make_zstd_source(path);
  return std::make_unique<FileSource>(path);
}

}  // namespace

InputStream::InputStream(fs::path path, const std::vector<std::string>& keys)
    : path_(std::move(path)), kind_(kind_of_input(path_)), source_(open(path_, keys)) {}

bool InputStream::append_to(std::string& text, std::size_t bytes) {
  const std::size_t before = text.size();
  text.resize(before + bytes);
  const std::size_t got = source_->read(std::as_writable_bytes(std::span(text).subspan(before)));
  text.resize(before + got);
  return got > 0;
}

std::string InputStream::rest() {
  std::string text;
  while (append_to(text, kBlockBytes)) {
  }
  return text;
}

bool InputStream::next_line(std::string& line) {
  line.clear();
  for (;;) {
    const std::size_t end = ahead_.find('\n', begin_);
    line.append(ahead_, begin_, end - begin_);
    if (end != ahead_.npos) {
      begin_ = end + 1;
      return true;
    }
    ahead_.clear();
    begin_ = 0;
    if (!append_to(ahead_, kBlockBytes)) return !line.empty();
  }
}

std::string kind_of_input(const fs::path& file) {
  if (is_table(file)) return ".jsonl";
  const bool packed = file.extension() == ".gz" || file.extension() == ".zst";
  return (packed ? file.stem() : file).extension();
}

}  // namespace tessera
