// Tensor: a typed, shaped, contiguous view of a Storage.
//
// Copying a Tensor copies the handle, not the elements, as with shared_ptr: a function that takes
// `const Tensor&` for its output cannot rebind the handle but does write the elements. The layout
// is always row-major without gaps. The only views are `reshape` and `slice` along dimension 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/shape.h"
#include "runtime/storage.h"

namespace tessera {

class Tensor {
 public:
  /// An undefined tensor: `defined()` is false.
  Tensor() = default;

  /// Uninitialized elements on the current context's device, charged to the current category.
  static Tensor empty(const Shape& shape, DType dtype);
  static Tensor zeros(const Shape& shape, DType dtype);
  /// Uninitialized elements in host memory, with any device; see Storage::allocate_on_host.
  static Tensor empty_on_host(const Shape& shape, DType dtype);
  /// Every element `value`; f32 or f64. Raises Error on other dtypes.
  static Tensor full(const Shape& shape, DType dtype, double value);
  /// Elements copied from host memory; the dtype is that of T. Raises Error if the count differs.
  template <typename T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <typename T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  /// A view of existing storage. Raises Error if it does not fit.
  static Tensor view(Storage storage, std::size_t byte_offset, const Shape& shape, DType dtype);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int dim) const { return shape_[dim]; }
  int rank() const { return shape_.rank(); }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_.device(); }
  const Storage& storage() const { return storage_; }

  std::byte* raw() const { return storage_.data() + byte_offset_; }
  /// The first element. Raises Error if T is not the element type.
  template <typename T>
  T* data() const;

  /// The same elements under another shape. Raises Error if the counts differ.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, end) of dimension 0. Raises Error if out of range.
  Tensor slice(std::int64_t begin, std::int64_t end) const;

  /// Sets every byte to zero, on the current stream.
  void zero() const;
  /// Copies elements from `source` (same dtype and count, any device), on the current stream. If
  /// either is in host memory, the host may touch that memory only after it has waited for the
  /// stream.
  void copy_from(const Tensor& source) const;
  /// A new tensor with the same elements.
  Tensor clone() const;
  /// The same elements in host memory, once the stream has caught up. A tensor in host memory
  /// returns itself.
  Tensor to_host() const;
  /// Copies the elements to the host, once the stream has caught up.
  template <typename T>
  std::vector<T> to_vector() const;
  /// The value of a one-element tensor of type T.
  template <typename T>
  T item() const;

 private:
  Storage storage_;
  std::size_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// "f32 [2, 3]", or "(no tensor)".
std::string to_string(const Tensor& tensor);

/// to_string(tensor) for messages of runtime/check.h. The text is made only when a message is
/// formatted, so a check that passes costs nothing.
struct Description {
  const Tensor& tensor;
};
inline Description describe(const Tensor& tensor) {
  return {tensor};
}

}  // namespace tessera
