#include "tools/checkpoint/dcp_writer.h"

#include <algorithm>

#include "tools/checkpoint/dcp_folder.h"
#include "tools/checkpoint/torch_archive.h"
#include "tools/pickle/writer.h"

namespace tessera {
namespace {

constexpr const char* kDataFile = "__0_0.distcp";

std::string metadata_class(std::string_view name) {
  return pickled::global("torch.distributed.checkpoint.metadata", name);
}

std::string torch_size(const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> items;
  for (const std::int64_t size : sizes) items.push_back(pickled::whole(size));
  return pickled::call(pickled::global("torch", "Size"), pickled::tuple({pickled::tuple(items)}));
}

/// An object's members, as a dict.
std::string members(const std::vector<std::pair<std::string, std::string>>& named) {
  std::vector<std::string> items;
  for (const auto& [name, value] : named) {
    items.push_back(pickled::text(name));
    items.push_back(value);
  }
  return pickled::dict(items);
}

/// dtype, layout, requires_grad, memory format (0: contiguous) and pin_memory.
std::string properties_of(DType dtype) {
  const std::string layout = pickled::call(pickled::global("torch.serialization", "_get_layout"),
                                           pickled::tuple({pickled::text("torch.strided")}));
  const std::string format =
      pickled::call(metadata_class("_MEM_FORMAT_ENCODING"), pickled::tuple({pickled::whole(0)}));
  return pickled::object(
      metadata_class("TensorProperties"),
      pickled::tuple({pickled::global("torch", torch_dtype_name(dtype)), layout,
                      pickled::boolean(false), format, pickled::boolean(false)}));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

DcpWriter::DcpWriter(FileCalls& calls, const std::filesystem::path& folder)
    : calls_(calls), folder_(folder), file_(calls, folder / kDataFile) {}

void DcpWriter::store(const std::string& index,
                      const std::vector<std::span<const std::byte>>& texts) {
  const std::int64_t begin = bytes_;
  for (const std::span<const std::byte> text : texts) {
    file_.append(text);
    bytes_ += std::ssize(text);
  }
  places_.push_back(pickled::object(metadata_class("MetadataIndex"), index));
  places_.push_back(
      pickled::object(pickled::global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                      members({{"relative_path", pickled::text(kDataFile)},
                               {"offset", pickled::whole(begin)},
                               {"length", pickled::whole(bytes_ - begin)}})));
}

void DcpWriter::add_to_metadata(const DcpPath& path, const std::string& name,
                                const std::string& value) {
  std::vector<std::string> keys;
  for (const std::string& key : path) keys.push_back(pickled::text(key));
  for (std::vector<std::string>* const dictionary : {&values_, &paths_}) {
    dictionary->push_back(pickled::text(name));
  }
  values_.push_back(value);
  paths_.push_back(pickled::tuple(keys));
}

void DcpWriter::add_tensor(const DcpPath& path, DType dtype, const Shape& shape,
                           std::span<const std::byte> elements) {
  const std::string name = fmt::format("{}", fmt::join(path, "."));
  const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const std::int64_t row_bytes = rows == 0 ? 0 : std::ssize(elements) / rows;
  const std::int64_t most =
      std::max<std::int64_t>(1, kChunkBytes / std::max<std::int64_t>(1, row_bytes));
  std::vector<std::string> chunks;
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    const std::int64_t end = std::min(rows, begin + most);
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(shape.rank()), 0);
    if (shape.rank() > 0) offsets[0] = begin;
    const Shape sizes = shape.rank() == 0 ? shape : shape.with(0, end - begin);
    const auto rows_of_chunk =
        elements.subspan(static_cast<std::size_t>(begin * row_bytes),
                         static_cast<std::size_t>((end - begin) * row_bytes));
    const TensorArchive archive = tensor_archive(dtype, sizes, rows_of_chunk);
    store(members({{"fqn", pickled::text(name)},
                   {"offset", torch_size(offsets)},
                   {"index", pickled::whole(begin / most)}}),
          {bytes_of(archive.before), rows_of_chunk, bytes_of(archive.after)});
    chunks.push_back(
        pickled::object(metadata_class("ChunkStorageMetadata"),
                        members({{"offsets", torch_size(offsets)},
                                 {"sizes", torch_size({sizes.begin(), sizes.end()})}})));
  }
  add_to_metadata(path, name,
                  pickled::object(metadata_class("TensorStorageMetadata"),
                                  members({{"properties", properties_of(dtype)},
                                           {"size", torch_size({shape.begin(), shape.end()})},
                                           {"chunks", pickled::list(chunks)}})));
}

void DcpWriter::add_value(const DcpPath& path, const std::string& pickled_value) {
  const std::string name = fmt::format("{}", fmt::join(path, "."));
  const std::string archive = value_archive(pickled_value);
  store(members({{"fqn", pickled::text(name)}}), {bytes_of(archive)});
  add_to_metadata(path, name, pickled::call(metadata_class("BytesStorageMetadata"), ")"));
}

void DcpWriter::finish() {
  file_.sync();
  const std::string metadata = pickled::object(
      metadata_class("Metadata"), members({{"state_dict_metadata", pickled::dict(values_)},
                                           {"planner_data", pickled::dict(paths_)},
                                           {"storage_data", pickled::dict(places_)}}));
  write_file(calls_, folder_ / kDcpMetadataFile, pickled::finished(metadata));
  sync_folder(calls_, folder_);
}

}  // namespace tessera
