#include "tools/checkpoint/dcp_folder.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/file.h"
#include "runtime/json.h"
#include "tools/pickle/reader.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ValueKind = PickleValue::Kind;

constexpr const char *kMetadataClass = "torch.distributed.checkpoint.metadata.Metadata",
                     *kTensorClass = "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
                     *kBytesClass = "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
                     *kPropertiesClass = "torch.distributed.checkpoint.metadata.TensorProperties",
                     *kChunkClass = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
                     *kIndexClass = "torch.distributed.checkpoint.metadata.MetadataIndex",
                     *kPlaceClass = "torch.distributed.checkpoint.filesystem._StorageInfo",
                     *kSizeClass = "torch.Size";

/// A chunk's name and offsets.
using ChunkKey = std::pair<std::string, std::vector<std::int64_t>>;
struct Place {
  std::string file;
  FilePart part;
};

std::vector<std::int64_t> sizes_of(const PickleValue& value) {
  const std::vector<const PickleValue*>& given = value.arguments(kSizeClass).items;
  std::vector<std::int64_t> sizes;
  if (given.empty()) return sizes;
  for (const PickleValue* item : given[0]->expect(ValueKind::tuple).items) {
    sizes.push_back(item->as_whole());
  }
  return sizes;
}

std::string plain_file_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  });
  check(plain && !name.empty() && name != "." && name != "..", "{} is not a plain file name",
        excerpt(name));
  return name;
}

std::map<ChunkKey, Place> places_of(const PickleValue& storage) {
  std::map<ChunkKey, Place> places;
  const std::vector<const PickleValue*>& items = storage.expect(ValueKind::dict).items;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const PickleValue& place = *items[i + 1];
    const PickleValue* const offset = items[i]->find_member(kIndexClass, "offset");
    check(place.find_member(kPlaceClass, "transform_descriptors") == nullptr,
          "a part of it is compressed or transformed");
    ChunkKey key = {items[i]->member(kIndexClass, "fqn").as_text(), {}};
    if (offset != nullptr && offset->kind != ValueKind::none) key.second = sizes_of(*offset);
    places[std::move(key)] = {plain_file_name(place.member(kPlaceClass, "relative_path").as_text()),
                              {place.member(kPlaceClass, "offset").as_whole(),
                               place.member(kPlaceClass, "length").as_whole()}};
  }
  return places;
}

/// Raises Error unless the chunk is within the tensor, and its elements could be in its archive.
void check_chunk(const DcpChunk& chunk, const DcpTensor& tensor) {
  bool inside =
      std::ssize(chunk.offsets) == tensor.shape.rank() && chunk.sizes.rank() == tensor.shape.rank();
  for (int dim = 0; inside && dim < tensor.shape.rank(); ++dim) {
    const std::int64_t offset = chunk.offsets[static_cast<std::size_t>(dim)];
    inside = offset >= 0 && offset <= tensor.shape[dim] &&
             chunk.sizes[dim] <= tensor.shape[dim] - offset;
  }
  check(inside, "a chunk is not within its shape {}", to_string(tensor.shape));
  check(chunk.sizes.numel() <= chunk.part.bytes / static_cast<std::int64_t>(size_of(tensor.dtype)),
        "a chunk of {} elements has {} bytes", chunk.sizes.numel(), chunk.part.bytes);
}

DcpTensor tensor_of(const std::string& name, const PickleValue& value,
                    const std::map<ChunkKey, Place>& places) {
  const PickleValue& properties = value.member(kTensorClass, "properties");
  properties.arguments(kPropertiesClass);
  check(
      properties.items.size() == 3 && !properties.items[2]->expect(ValueKind::tuple).items.empty(),
      "it has no dtype");
  DcpTensor tensor = {
      .dtype = dtype_from_torch(properties.items[2]->items[0]->expect(ValueKind::global).text),
      .shape = Shape(sizes_of(value.member(kTensorClass, "size"))),
      .chunks = {}};
  std::int64_t elements = 0;
  std::set<std::vector<std::int64_t>> seen;
  for (const PickleValue* item :
       value.member(kTensorClass, "chunks").expect(ValueKind::list).items) {
    const Shape sizes(sizes_of(item->member(kChunkClass, "sizes")));
    if (sizes.numel() == 0) continue;  // a rank without elements
    std::vector<std::int64_t> offsets = sizes_of(item->member(kChunkClass, "offsets"));
    const auto place = places.find({name, offsets});
    check(place != places.end() && seen.insert(offsets).second, "a chunk of it has no place");
    DcpChunk chunk = {.offsets = std::move(offsets),
                      .sizes = sizes,
                      .file = place->second.file,
                      .part = place->second.part};
    check_chunk(chunk, tensor);
    elements += sizes.numel();
    tensor.chunks.push_back(std::move(chunk));
  }
  check(elements == tensor.shape.numel(), "its chunks have {} of {} elements", elements,
        tensor.shape.numel());
  return tensor;
}

/// Copies a chunk's elements to their places in the whole tensor.
void place_chunk(const DcpTensor& tensor, const DcpChunk& chunk, std::span<const std::byte> from,
                 std::span<std::byte> whole) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const int last = tensor.shape.rank() - 1;
  const std::int64_t run = last < 0 ? 1 : chunk.sizes[last];
  for (std::int64_t row = 0; row < chunk.sizes.numel() / run; ++row) {
    std::int64_t rest = row, stride = last < 0 ? 1 : tensor.shape[last],
                 element = last < 0 ? 0 : chunk.offsets.back();
    for (int dim = last - 1; dim >= 0; --dim) {
      const std::int64_t at = rest % chunk.sizes[dim];
      element += (chunk.offsets[static_cast<std::size_t>(dim)] + at) * stride;
      rest /= chunk.sizes[dim];
      stride *= tensor.shape[dim];
    }
    std::memcpy(whole.data() + element * size, from.data() + row * run * size,
                static_cast<std::size_t>(run * size));
  }
}

}  // namespace

DcpFolder::DcpFolder(const fs::path& path) : path_(path) {
  const fs::path file = path / kDcpMetadataFile;
  const std::string text = read_text_file(file);
  std::string name;
  try {
    const Pickle pickle(text);
    const auto places = places_of(pickle.root().member(kMetadataClass, "storage_data"));
    const std::vector<const PickleValue*>& items =
        pickle.root().member(kMetadataClass, "state_dict_metadata").expect(ValueKind::dict).items;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      name = items[i]->as_text();
      if (items[i + 1]->type() == kBytesClass) {
        values_.push_back(name);
      } else {
        tensors_[name] = tensor_of(name, *items[i + 1], places);
      }
    }
  } catch (const Error& error) {
    if (name.empty()) fail("{}: {}", file.string(), error.what());
    fail("{}: {}: {}", file.string(), excerpt(name), error.what());
  }
}

std::vector<std::byte> DcpFolder::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), "{} has no tensor {}", path_.string(), excerpt(name));
  const DcpTensor& tensor = found->second;
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  std::vector<std::byte> whole(static_cast<std::size_t>(tensor.shape.numel() * size)), piece;
  for (const DcpChunk& chunk : tensor.chunks) {
    const InputFile file(path_ / chunk.file);
    try {
      const FilePart elements = tensor_elements(file, chunk.part, tensor.dtype, chunk.sizes);
      piece.resize(static_cast<std::size_t>(elements.bytes));
      file.read(elements.offset, piece);
    } catch (const Error& error) {
      fail("{}: {}: {}", file.path().string(), excerpt(name), error.what());
    }
    place_chunk(tensor, chunk, piece, whole);
  }
  return whole;
}

}  // namespace tessera
