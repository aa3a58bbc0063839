#include "tools/checkpoint/torch_archive.h"

#include <zlib.h>

#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/json.h"
#include "tools/pickle/reader.h"
#include "tools/pickle/writer.h"

namespace tessera {
namespace {

using ValueKind = PickleValue::Kind;

static_assert(std::endian::native == std::endian::little);

/// A dtype's names in PyTorch: of itself, and of a storage.
struct TorchDType {
  DType dtype;
  const char* name;
  const char* storage;
};
constexpr std::array<TorchDType, 7> kTorchDTypes = {{{DType::f32, "float32", "FloatStorage"},
                                                     {DType::bf16, "bfloat16", "BFloat16Storage"},
                                                     {DType::f16, "float16", "HalfStorage"},
                                                     {DType::f64, "float64", "DoubleStorage"},
                                                     {DType::i32, "int32", "IntStorage"},
                                                     {DType::i64, "int64", "LongStorage"},
                                                     {DType::u8, "uint8", "ByteStorage"}}};

const TorchDType& torch_dtype(DType dtype) {
  for (const TorchDType& known : kTorchDTypes) {
    if (known.dtype == dtype) return known;
  }
  fail("PyTorch has no dtype {}", name_of(dtype));
}

// Records of a zip archive: their signatures and sizes.
constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50;
constexpr std::int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocator64Bytes = 20,
                       kEnd64Bytes = 56;

std::string read_text(const InputFile& file, const FilePart& part) {
  check(part.bytes >= 0 && part.offset >= 0 && part.offset <= file.size() - part.bytes,
        "{} ends at byte {}; {} bytes from {} on were expected", file.path().string(), file.size(),
        part.bytes, part.offset);
  std::string text(static_cast<std::size_t>(part.bytes), '\0');
  file.read(part.offset, std::as_writable_bytes(std::span(text)));
  return text;
}

/// A field of a record, the lowest byte first.
std::int64_t field(const std::string& record, std::int64_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(record.at(static_cast<std::size_t>(at + i)));
  }
  return static_cast<std::int64_t>(value);
}

/// The list of entries in an archive: its place, counted from the beginning of the archive.
FilePart directory_of(const InputFile& file, const FilePart& part) {
  check(part.bytes >= kEndBytes, "an archive of {} bytes is too short", part.bytes);
  const std::int64_t end = part.bytes - kEndBytes;
  const std::string last = read_text(file, {part.offset + end, kEndBytes});
  check(field(last, 0, 4) == kEnd, "it is no archive of torch.save");
  const std::int64_t before = end - kLocator64Bytes - kEnd64Bytes;
  if (before >= 0) {
    const std::string wide = read_text(file, {part.offset + before, kEnd64Bytes});
    if (field(wide, 0, 4) == kEnd64) return {field(wide, 48, 8), field(wide, 40, 8)};
  }
  return {field(last, 16, 4), field(last, 12, 4)};
}

void check_within(const FilePart& inner, const FilePart& outer, std::string_view name) {
  check(inner.offset >= 0 && inner.bytes >= 0 && inner.bytes <= outer.bytes &&
            inner.offset <= outer.bytes - inner.bytes,
        "{} is not within the {} bytes of its archive", name, outer.bytes);
}

/// The value's shape as a Python tuple of its numbers.
std::string pickled_shape(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> items;
  for (const std::int64_t size : sizes) items.push_back(pickled::whole(size));
  return pickled::tuple(items);
}

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()), 1);
  for (int dim = shape.rank() - 2; dim >= 0; --dim) {
    const auto at = static_cast<std::size_t>(dim);
    strides[at] = strides[at + 1] * std::max<std::int64_t>(shape[dim + 1], 1);
  }
  return strides;
}

std::vector<std::int64_t> numbers_of(const PickleValue& tuple) {
  std::vector<std::int64_t> numbers;
  for (const PickleValue* item : tuple.expect(ValueKind::tuple).items)
    numbers.push_back(item->as_whole());
  return numbers;
}

/// Raises Error unless the pickle is a contiguous tensor at the beginning of a storage of its size.
void check_tensor(const PickleValue& value, DType dtype, const Shape& shape) {
  const std::vector<const PickleValue*>& made =
      value.arguments("torch._utils._rebuild_tensor_v2").items;
  check(made.size() >= 4 && made[0]->kind == ValueKind::persistent,
        "it is no tensor with a storage");
  const std::vector<const PickleValue*>& storage =
      made[0]->items[0]->expect(ValueKind::tuple).items;
  const std::string expected = std::string("torch.") + torch_dtype(dtype).storage;
  check(storage.size() >= 3 && storage[1]->expect(ValueKind::global).text == expected &&
            storage[2]->as_text() == "0",
        "its storage is not a {}", expected);
  const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  check(made[1]->as_whole() == 0 && numbers_of(*made[2]) == sizes &&
            (shape.numel() <= 1 || numbers_of(*made[3]) == strides_of(shape)),
        "its tensor is not one of shape {} without gaps", to_string(shape));
}

/// A zip archive as it is written: stored entries below 4 GiB.
class ArchiveText {
 public:
  /// The entry's header. Its contents follow.
  std::string begin_entry(const std::string& name, std::span<const std::byte> contents) {
    const std::string path = "archive/" + name;
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const unsigned char*>(contents.data()), contents.size()));
    std::string common;             // of both headers
    put(common, 0, 2 + 2 + 2 + 2);  // flags, stored, no time
    common[2 + 2 + 2] = 0x21;       // the first of January 1980
    put(common, crc, 4);
    put(common, contents.size(), 4);
    put(common, contents.size(), 4);
    put(common, path.size(), 2);
    put(common, 0, 2);  // no more fields
    std::string local;
    put(local, kLocal, 4);
    put(local, kVersion, 2);
    local += common + path;
    put(directory_, kCentral, 4);
    put(directory_, kVersion, 2);
    put(directory_, kVersion, 2);
    directory_ += common;
    put(directory_, 0, 2 + 2 + 2 + 4);  // no comment, one disk, no attributes
    put(directory_, bytes_, 4);
    directory_ += path;
    bytes_ += local.size() + contents.size();
    ++entries_;
    return local;
  }

  std::string small_entry(const std::string& name, const std::string& contents) {
    return begin_entry(name, std::as_bytes(std::span(contents))) + contents;
  }

  /// The list of entries, and the end.
  std::string finished() const {
    std::string text = directory_;
    put(text, kEnd, 4);
    put(text, 0, 4);  // one disk
    put(text, entries_, 2);
    put(text, entries_, 2);
    put(text, directory_.size(), 4);
    put(text, bytes_, 4);
    put(text, 0, 2);  // no comment
    return text;
  }

 private:
  static constexpr std::uint64_t kVersion = 20;  // of the format: 2.0

  static void put(std::string& text, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  }

  std::string directory_;
  std::uint64_t bytes_ = 0, entries_ = 0;
};

}  // namespace

std::map<std::string, FilePart> archive_entries(const InputFile& file, const FilePart& part) {
  const FilePart place = directory_of(file, part);
  check_within(place, part, "the list of entries");
  const std::string directory = read_text(file, {part.offset + place.offset, place.bytes});
  std::map<std::string, FilePart> entries;
  const auto size = std::ssize(directory);
  for (std::int64_t at = 0; at < size;) {
    check(size - at >= kCentralBytes && field(directory, at, 4) == kCentral,
          "the list of its entries is damaged at byte {}", at);
    const std::int64_t name_bytes = field(directory, at + 28, 2);
    check(size - at - kCentralBytes >= name_bytes, "the list of its entries ends within a name");
    const std::string path = directory.substr(static_cast<std::size_t>(at + kCentralBytes),
                                              static_cast<std::size_t>(name_bytes));
    check(field(directory, at + 10, 2) == 0, "its entry {} is compressed", excerpt(path));
    const FilePart header = {field(directory, at + 42, 4), kLocalBytes};
    check_within(header, part, excerpt(path));
    const std::string local = read_text(file, {part.offset + header.offset, kLocalBytes});
    check(field(local, 0, 4) == kLocal, "its entry {} is damaged", excerpt(path));
    const FilePart contents = {
        header.offset + kLocalBytes + field(local, 26, 2) + field(local, 28, 2),
        field(directory, at + 24, 4)};
    check_within(contents, part, excerpt(path));
    entries[path.substr(path.find('/') + 1)] = {part.offset + contents.offset, contents.bytes};
    at += kCentralBytes + name_bytes + field(directory, at + 30, 2) + field(directory, at + 32, 2);
  }
  return entries;
}

FilePart tensor_elements(const InputFile& file, const FilePart& archive, DType dtype,
                         const Shape& shape) {
  const std::map<std::string, FilePart> entries = archive_entries(file, archive);
  const auto value = entries.find("data.pkl"), elements = entries.find("data/0"),
             order = entries.find("byteorder");
  check(value != entries.end() && elements != entries.end(), "its archive has no tensor");
  check(order == entries.end() || read_text(file, order->second) == "little",
        "its elements are not little-endian");
  check_tensor(Pickle(read_text(file, value->second)).root(), dtype, shape);
  const std::int64_t bytes = shape.numel() * static_cast<std::int64_t>(size_of(dtype));
  check(elements->second.bytes == bytes, "its elements have {} bytes; expected {}",
        elements->second.bytes, bytes);
  return elements->second;
}

std::string torch_dtype_name(DType dtype) {
  return torch_dtype(dtype).name;
}

DType dtype_from_torch(const std::string& name) {
  for (const TorchDType& known : kTorchDTypes) {
    if (name == std::string("torch.") + known.name) return known.dtype;
  }
  fail("its dtype is {}; expected one such as torch.float32", excerpt(name));
}

std::string value_archive(const std::string& pickled_value) {
  ArchiveText archive;
  std::string text = archive.small_entry("data.pkl", pickled::finished(pickled_value));
  text += archive.small_entry("byteorder", "little");
  text += archive.small_entry("version", "3\n");
  return text + archive.finished();
}

TensorArchive tensor_archive(DType dtype, const Shape& shape, std::span<const std::byte> elements) {
  const std::string storage = pickled::persistent(pickled::tuple(
      {pickled::text("storage"), pickled::global("torch", torch_dtype(dtype).storage),
       pickled::text("0"), pickled::text("cpu"), pickled::whole(shape.numel())}));
  const std::string hooks = pickled::call(pickled::global("collections", "OrderedDict"), ")");
  const std::string tensor = pickled::call(
      pickled::global("torch._utils", "_rebuild_tensor_v2"),
      pickled::tuple({storage, pickled::whole(0), pickled_shape({shape.begin(), shape.end()}),
                      pickled_shape(strides_of(shape)), pickled::boolean(false), hooks}));
  ArchiveText archive;
  TensorArchive result;
  result.before = archive.small_entry("data.pkl", pickled::finished(tensor));
  result.before += archive.small_entry("byteorder", "little");
  result.before += archive.begin_entry("data/0", elements);
  result.after = archive.small_entry("version", "3\n");
  result.after += archive.finished();
  return result;
}

}  // namespace tessera
