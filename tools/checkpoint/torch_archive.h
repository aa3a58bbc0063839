// The files of torch.save: a zip archive with a pickle and, for a tensor, its elements.
//
//   archive/data.pkl    the value; a tensor's elements are a persistent object, ("storage", class, "0", ...)
//   archive/data/0      the elements, little-endian
//   archive/byteorder, archive/version, ...
//
// Entries are stored, not compressed. The list of entries is at the end (PKWARE, APPNOTE.TXT, sections 4.3.7 to
// 4.3.16, with the 64-bit records that PyTorch always writes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "runtime/dtype.h"
#include "runtime/input_file.h"
#include "runtime/shape.h"

namespace tessera {

/// Bytes of a file.
struct FilePart {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// The entries of the archive in this part of a file, by their names without the first folder: "data.pkl".
/// Raises Error if the part is not such an archive.
std::map<std::string, FilePart> archive_entries(const InputFile& file, const FilePart& part);

/// Where the archive of a tensor has its elements, contiguous and row-major. Raises Error if the archive has
/// no such tensor.
FilePart tensor_elements(const InputFile& file, const FilePart& archive, DType dtype,
                         const Shape& shape);

/// PyTorch's name of a dtype: "float32". Raises Error if PyTorch or the runtime does not have it.
std::string torch_dtype_name(DType dtype);
DType dtype_from_torch(const std::string& name);

/// The archive of a value.
std::string value_archive(const std::string& pickled_value);

/// The archive of a tensor is the first text, the elements, and the second text.
struct TensorArchive {
  std::string before, after;
};
TensorArchive tensor_archive(DType dtype, const Shape& shape, std::span<const std::byte> elements);

}  // namespace tessera
