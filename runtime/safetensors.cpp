#include "runtime/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "runtime/check.h"
#include "runtime/integer.h"
#include "runtime/json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
// The reference implementation's limit. It keeps a hostile file from filling memory with JSON.
constexpr std::uint64_t kLargestHeader = 100'000'000;
// The header, a tensor's entry, its shape: a valid file is nested no deeper.
constexpr int kDeepest = 3;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr EnumNames<DType> kFormatNames = {
    "dtype", {"F32", "BF16", "F16", "F64", "I32", "I64", "U8", "F8_E4M3", "F8_E5M2"}};

/// `text` as a JSON string.
std::string json_text(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail("a name or metadata text is not UTF-8");
  }
}

std::uint64_t read_little_endian(const std::byte* data) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  }
  return value;
}

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// --- Reading -------------------------------------------------------------------------------------

std::string_view header_of(std::span<const std::byte> file) {
  check(file.size() >= kLengthBytes, "it has only {} bytes", file.size());
  const std::uint64_t length = read_little_endian(file.data());
  check(length <= kLargestHeader, "a header of {} bytes is more than the format's {}", length,
        kLargestHeader);
  check(length <= file.size() - kLengthBytes, "a header of {} bytes does not fit a file of {}",
        length, file.size());
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  check(header.starts_with('{'), "the header is not a JSON object");
  return header;
}

const Json& field_of(const Json& entry, const char* name) {
  const auto found = entry.find(name);
  check(found != entry.end(), "it has no '{}'", name);
  return *found;
}

/// A list of non-negative integers; 1.0, -1 and "1" are refused.
std::vector<std::uint64_t> numbers_of(const Json& entry, const char* name) {
  const Json& list = field_of(entry, name);
  const auto is_natural = [](const Json& value) { return value.is_number_unsigned(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_natural)) {
    fail("its '{}' is not a list of non-negative 64-bit integers", name);
  }
  return list.get<std::vector<std::uint64_t>>();
}

Shape shape_of(const Json& entry) {
  std::vector<std::int64_t> extents;
  for (const std::uint64_t extent : numbers_of(entry, "shape")) {
    check(extent <= std::numeric_limits<std::int64_t>::max(), "the extent {} is too large", extent);
    extents.push_back(static_cast<std::int64_t>(extent));
  }
  return Shape(extents);
}

TensorInfo info_of(const Json& entry, std::size_t data_bytes) {
  check(entry.is_object(), "its entry is not a JSON object");
  const Json& dtype = field_of(entry, "dtype");
  check(dtype.is_string(), "its 'dtype' is not a string");
  TensorInfo info{kFormatNames.value_of(dtype.get_ref<const std::string&>()), shape_of(entry)};
  const auto offsets = numbers_of(entry, "data_offsets");
  check(offsets.size() == 2, "its 'data_offsets' has {} numbers instead of 2", offsets.size());
  info.begin = offsets[0];
  info.end = offsets[1];
  check(info.begin <= info.end, "its data begins at {} and ends before, at {}", info.begin,
        info.end);
  check(info.end <= data_bytes, "its data ends at byte {} of a data section of {}", info.end,
        data_bytes);
  std::size_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(static_cast<std::size_t>(info.shape.numel()),
                                               size_of(info.dtype), &bytes);
  if (overflow || bytes != info.end - info.begin) {
    fail("{} {} does not fill its {} bytes of data", kFormatNames.name_of(info.dtype),
         to_string(info.shape), info.end - info.begin);
  }
  return info;
}

std::map<std::string, std::string> metadata_of(const Json& entry) {
  const auto is_string = [](const Json& value) { return value.is_string(); };
  if (!entry.is_object() || !std::all_of(entry.begin(), entry.end(), is_string)) {
    fail("its values are not all strings");
  }
  return entry.get<std::map<std::string, std::string>>();
}

/// Every byte of the data section must belong to exactly one tensor.
void check_coverage(const std::map<std::string, TensorInfo>& tensors, std::size_t data_bytes) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> order;
  for (const Entry& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::size_t covered = 0;
  for (const Entry* entry : order) {
    const auto& [name, info] = *entry;
    if (info.begin < covered) {
      fail("tensor {}: its data at byte {} overlaps another tensor's", excerpt(name), info.begin);
    }
    if (info.begin > covered) {
      fail("tensor {}: bytes {} to {} before its data belong to no tensor", excerpt(name), covered,
           info.begin);
    }
    covered = info.end;
  }
  check(covered == data_bytes, "the last {} bytes belong to no tensor", data_bytes - covered);
}

bool is_aligned(const std::byte* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0;
}

// --- Writing -------------------------------------------------------------------------------------

std::string metadata_entry(const std::map<std::string, std::string>& metadata) {
  std::string pairs;
  for (const auto& [key, value] : metadata) {
    pairs += fmt::format("{}{}:{}", pairs.empty() ? "" : ",", json_text(key), json_text(value));
  }
  return fmt::format("\"{}\":{{{}}}", kMetadataKey, pairs);
}

std::size_t bytes_of(const TensorInfo& info) {
  return static_cast<std::size_t>(info.shape.numel()) * size_of(info.dtype);
}

std::string tensor_entry(const std::string& name, const TensorInfo& info, std::size_t begin) {
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_text(name),
                     kFormatNames.name_of(info.dtype),
                     fmt::join(info.shape.begin(), info.shape.end(), ","), begin,
                     begin + bytes_of(info));
}

}  // namespace

std::string safetensors_header(const TensorInfos& infos,
                               const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += metadata_entry(metadata);
  std::set<std::string_view> names = {kMetadataKey};
  std::size_t offset = 0;
  for (const auto& [name, info] : infos) {
    if (!names.insert(name).second) fail("the name {} is reserved or given twice", excerpt(name));
    if (json.size() > 1) json += ',';
    json += tensor_entry(name, info, offset);
    offset += bytes_of(info);
  }
  json += '}';
  json.resize(static_cast<std::size_t>(round_up(std::ssize(json), 8)), ' ');
  return little_endian(json.size()) + json;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<const MappedFile>(path)) {
  std::string where;  // the place in the file, for the message
  try {
    const std::string_view header = header_of(file_->bytes());
    data_begin_ = kLengthBytes + header.size();
    const std::size_t data_bytes = file_->bytes().size() - data_begin_;
    const Json entries = parse_json(header, kDeepest, "the header");
    for (const auto& [name, entry] : entries.items()) {
      if (name == kMetadataKey) {
        where = fmt::format("{}: ", kMetadataKey);
        metadata_ = metadata_of(entry);
      } else {
        where = fmt::format("tensor {}: ", excerpt(name));
        tensors_.emplace(name, info_of(entry, data_bytes));
      }
    }
    where.clear();
    check_coverage(tensors_, data_bytes);
  } catch (const Error& error) {
    fail("{} is not a valid safetensors file: {}{}", path.string(), where, error.what());
  }
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail("{} has no tensor {}", file_->path().string(), excerpt(name));
  const TensorInfo& info = found->second;
  const auto data = file_->bytes().subspan(data_begin_ + info.begin, info.end - info.begin);
  if (is_aligned(data.data(), info.dtype)) {
    return Tensor::view(Storage::borrow(data.data(), data.size(), file_), 0, info.shape,
                        info.dtype);
  }
  // The heap's alignment suits every dtype. The copy is host memory, with any device.
  const auto copy = std::make_shared<const std::vector<std::byte>>(data.begin(), data.end());
  return Tensor::view(Storage::borrow(copy->data(), copy->size(), copy), 0, info.shape, info.dtype);
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  TensorInfos infos;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) fail("tensor {} is undefined; allocate it first", excerpt(name));
    infos.push_back({name, {.dtype = tensor.dtype(), .shape = tensor.shape()}});
  }
  write_safetensors(path, infos, metadata, [&](const auto& write) {
    for (const auto& [name, tensor] : tensors) write(tensor);
  });
}

void write_safetensors(
    const std::filesystem::path& path, const TensorInfos& infos,
    const std::map<std::string, std::string>& metadata,
    const std::function<void(const std::function<void(const Tensor&)>&)>& produce) {
  write_file_atomically(path, [&](std::ostream& stream) {
    stream << safetensors_header(infos, metadata);
    std::size_t written = 0;
    produce([&](const Tensor& tensor) {
      if (written == infos.size()) fail("more tensors were written than the {} announced", written);
      const auto& [name, info] = infos[written++];
      if (!tensor.defined() || tensor.dtype() != info.dtype || tensor.shape() != info.shape) {
        fail("tensor {} is {}; another dtype or shape was announced", excerpt(name),
             to_string(tensor));
      }
      const Tensor here = tensor.to_host();
      stream.write(reinterpret_cast<const char*>(here.raw()),
                   static_cast<std::streamsize>(here.bytes()));
    });
    if (written < infos.size()) fail("tensor {} was not written", excerpt(infos[written].first));
  });
}

}  // namespace tessera
