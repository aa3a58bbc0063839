#include "sharding/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/file.h"
#include "runtime/integer.h"
#include "runtime/json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The first line of the file holds this, a checksum and kAfterChecksum.
constexpr std::string_view kBeforeChecksum = "{\"checksum\": \"";
constexpr std::string_view kAfterChecksum = "\",\n";
constexpr std::size_t kChecksumDigits = 8;

std::string hexadecimal(std::uint32_t checksum) {
  return fmt::format("{:08x}", checksum);
}

std::uint32_t checksum_of(const std::string& text) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, 16);
  check(parsed.ec == std::errc() && parsed.ptr == end && text.size() == kChecksumDigits,
        "{} is no checksum of {} hexadecimal digits", excerpt(text), kChecksumDigits);
  return value;
}

/// The slice that continues the runs of `slice` and the `count` - 1 after it: as long, next to the last in
/// the file, and `stride` elements behind it in the tensor.
bool continues(const CheckpointSlice& next, const CheckpointSlice& slice, std::int64_t count,
               std::int64_t stride, std::int64_t size) {
  return next.file == slice.file && next.elements.count() == slice.elements.count() &&
         next.elements.begin == slice.elements.begin + count * stride &&
         next.offset == slice.offset + count * slice.elements.count() * size;
}

/// A slice, or several at equal distances as one entry.
Json json_of(const CheckpointSlice& slice, std::int64_t runs, std::int64_t stride) {
  Json json = {{"file", slice.file},
               {"offset", slice.offset},
               {"begin", slice.elements.begin},
               {"end", slice.elements.end}};
  if (runs > 1) json.update({{"runs", runs}, {"stride", stride}});
  return json;
}

Json json_of(const CheckpointTensor& tensor) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::vector<CheckpointSlice> slices = tensor.slices;
  std::stable_sort(slices.begin(), slices.end(),
                   [](const auto& a, const auto& b) { return a.file < b.file; });
  Json entries = Json::array();
  for (std::size_t i = 0; i < slices.size();) {
    std::size_t end = i + 1;
    const std::int64_t stride =
        end < slices.size() ? slices[end].elements.begin - slices[i].elements.begin : 0;
    while (end < slices.size() &&
           continues(slices[end], slices[i], static_cast<std::int64_t>(end - i), stride, size)) {
      ++end;
    }
    entries.push_back(json_of(slices[i], static_cast<std::int64_t>(end - i), stride));
    i = end;
  }
  return {{"dtype", name_of(tensor.dtype)},
          {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
          {"slices", std::move(entries)}};
}

Json json_of(const CheckpointFile& file) {
  Json checksums = Json::array();
  for (const std::uint32_t checksum : file.checksums) checksums.push_back(hexadecimal(checksum));
  return {{"bytes", file.bytes}, {"crc32c", std::move(checksums)}};
}

std::int64_t count_of(const Json& entry, const char* name) {
  const Json& value = entry.at(name);
  check(value.is_number_unsigned() &&
            value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
        "'{}' is not a number from 0 to 2^63 - 1", name);
  return value.get<std::int64_t>();
}

/// Whether it names a file of the folder and may stand in a message.
bool is_plain_file_name(const std::string& name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
  return printable && !name.empty() && name != "." && name != ".." &&
         fs::path(name) == fs::path(name).filename();
}

CheckpointFile file_from(const std::string& name, const Json& entry) {
  check(is_plain_file_name(name), "it is not a plain file name");
  CheckpointFile file = {.bytes = count_of(entry, "bytes")};
  for (const Json& checksum : entry.at("crc32c")) {
    file.checksums.push_back(checksum_of(checksum.get<std::string>()));
  }
  const std::int64_t blocks = ceil_div(file.bytes, CheckpointManifest::kBlockBytes);
  check(std::ssize(file.checksums) == blocks, "it has {} checksums; {} bytes have {} blocks",
        file.checksums.size(), file.bytes, blocks);
  return file;
}

bool is_before(const CheckpointSlice& a, const CheckpointSlice& b) {
  return a.elements.begin < b.elements.begin;
}

/// Raises Error unless the runs lie in the tensor and in the file.
void check_slice(const CheckpointSlice& slice, std::int64_t runs, std::int64_t stride,
                 const CheckpointTensor& tensor, const CheckpointManifest& manifest) {
  const auto file = manifest.files.find(slice.file);
  check(file != manifest.files.end(), "the file {} of a slice is not listed", excerpt(slice.file));
  const ElementRange& elements = slice.elements;
  const std::int64_t all = tensor.shape.numel();
  check(elements.begin < elements.end && elements.end <= all,
        "a slice has the elements {} to {} of {}", elements.begin, elements.end, all);
  check(runs >= 1 && (runs == 1 ||
                      (stride >= elements.count() && runs - 1 <= (all - elements.end) / stride)),
        "a slice has {} runs of {} elements, {} apart, in a tensor of {}", runs, elements.count(),
        stride, all);
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  check(slice.offset <= file->second.bytes &&
            runs * elements.count() <= (file->second.bytes - slice.offset) / size,
        "a slice does not fit its file {}", excerpt(slice.file));
}

CheckpointTensor tensor_from(const Json& entry, const CheckpointManifest& manifest) {
  CheckpointTensor tensor = {.dtype = dtype_from_name(entry.at("dtype").get<std::string>()),
                             .shape = Shape(entry.at("shape").get<std::vector<std::int64_t>>())};
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const Json& item : entry.at("slices")) {
    const CheckpointSlice first = {.file = item.at("file").get<std::string>(),
                                   .offset = count_of(item, "offset"),
                                   .elements = {count_of(item, "begin"), count_of(item, "end")}};
    const std::int64_t runs = item.contains("runs") ? count_of(item, "runs") : 1;
    const std::int64_t stride = item.contains("stride") ? count_of(item, "stride") : 0;
    check_slice(first, runs, stride, tensor, manifest);
    for (std::int64_t run = 0; run < runs; ++run) {
      CheckpointSlice slice = first;
      slice.offset += run * first.elements.count() * size;
      slice.elements.begin += run * stride;
      slice.elements.end += run * stride;
      tensor.slices.push_back(std::move(slice));
    }
  }
  std::sort(tensor.slices.begin(), tensor.slices.end(), is_before);
  return tensor;
}

/// The text after the first line, if its checksum is right.
std::string_view verified(std::string_view text) {
  const std::size_t begin = kBeforeChecksum.size() + kChecksumDigits + kAfterChecksum.size();
  check(text.size() >= begin && text.starts_with(kBeforeChecksum) &&
            text.substr(0, begin).ends_with(kAfterChecksum),
        "it does not begin with its checksum");
  const std::string_view body = text.substr(begin);
  const std::string found = hexadecimal(crc32c(std::as_bytes(std::span(body))));
  const std::string_view expected = text.substr(kBeforeChecksum.size(), kChecksumDigits);
  check(found == expected, "it is damaged: its checksum is {}, and it says {}", found,
        excerpt(expected));
  return body;
}

}  // namespace

void CheckpointManifest::add(const CheckpointManifest& part) {
  for (const auto& [name, file] : part.files) {
    check(files.emplace(name, file).second, "two ranks have written a file {}", name);
  }
  for (const auto& [name, tensor] : part.tensors) {
    const auto [found, is_new] = tensors.emplace(name, tensor);
    if (is_new) continue;
    CheckpointTensor& here = found->second;
    check(here.dtype == tensor.dtype && here.shape == tensor.shape,
          "tensor {} has another dtype or shape on another rank", excerpt(name));
    here.slices.insert(here.slices.end(), tensor.slices.begin(), tensor.slices.end());
  }
  for (auto& [name, tensor] : tensors) {
    std::sort(tensor.slices.begin(), tensor.slices.end(), is_before);
  }
}

std::string to_json(const CheckpointManifest& manifest) {
  Json json = {{"step", manifest.step},
               {"healthy", manifest.healthy},
               {"state", parse_json(manifest.state)},
               {"tensors", Json::object()},
               {"files", Json::object()}};
  for (const auto& [name, tensor] : manifest.tensors) json["tensors"][name] = json_of(tensor);
  for (const auto& [name, file] : manifest.files) json["files"][name] = json_of(file);
  const std::string body = json.dump(1).substr(1) + "\n";  // without the opening brace
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(body)));
  return fmt::format("{}{}{}{}", kBeforeChecksum, hexadecimal(checksum), kAfterChecksum, body);
}

CheckpointManifest parse_manifest(std::string_view text) {
  const std::string_view body = verified(text);
  std::string where;
  try {
    const Json json = parse_json(fmt::format("{{{}", body));
    CheckpointManifest manifest = {.step = count_of(json, "step"),
                                   .healthy = json.at("healthy").get<bool>(),
                                   .state = json.at("state").dump()};
    check(json.at("state").is_object(), "'state' is not an object");
    for (const auto& [name, entry] : json.at("files").items()) {
      where = fmt::format("file {}: ", excerpt(name));
      manifest.files.emplace(name, file_from(name, entry));
    }
    for (const auto& [name, entry] : json.at("tensors").items()) {
      where = fmt::format("tensor {}: ", excerpt(name));
      manifest.tensors.emplace(name, tensor_from(entry, manifest));
    }
    return manifest;
  } catch (const Json::exception& error) {
    fail("{}{}", where, error.what());
  } catch (const Error& error) {
    fail("{}{}", where, error.what());
  }
}

void check_complete(const CheckpointManifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    std::int64_t covered = 0;
    for (const CheckpointSlice& slice : tensor.slices) {
      check(slice.elements.begin == covered,
            "tensor {}: the slices have {} at element {}; expected the next slice there",
            excerpt(name), slice.elements.begin < covered ? "an overlap" : "a gap", covered);
      covered = slice.elements.end;
    }
    check(covered == tensor.shape.numel(), "tensor {}: the slices end at element {} of {}",
          excerpt(name), covered, tensor.shape.numel());
  }
}

CheckpointManifest read_checkpoint_manifest(const fs::path& folder) {
  const fs::path path = folder / CheckpointManifest::kFileName;
  const std::string text = read_text_file(path);
  try {
    CheckpointManifest manifest = parse_manifest(text);
    check_complete(manifest);
    return manifest;
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

}  // namespace tessera
