#include "runtime/tensor.h"

#include <cstring>

#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {
namespace {

// The only places where tensor bytes move without a kernel.
void fill_zero(std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  current_stream().enqueue([=] { std::memset(data, 0, bytes); });
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  current_stream().enqueue([=] { std::memcpy(to, from, bytes); });
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return view(Storage::allocate(bytes), 0, shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  tensor.zero();
  return tensor;
}

Tensor Tensor::view(Storage storage, std::size_t byte_offset, const Shape& shape, DType dtype) {
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.byte_offset_ = byte_offset;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  check(byte_offset + tensor.bytes() <= tensor.storage_.bytes(),
        "a tensor {} at byte {} does not fit a storage of {} bytes", describe(tensor), byte_offset,
        tensor.storage_.bytes());
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.numel() == numel(), "cannot reshape {} to {}: {} elements are not {}",
        describe(*this), to_string(shape), numel(), shape.numel());
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  check(rank() >= 1 && 0 <= begin && begin <= end && end <= shape_[0],
        "rows [{}, {}) are not in {}", begin, end, describe(*this));
  Tensor result = *this;
  result.shape_ = shape_.with(0, end - begin);
  const std::size_t row = shape_[0] == 0 ? 0 : bytes() / static_cast<std::size_t>(shape_[0]);
  result.byte_offset_ += static_cast<std::size_t>(begin) * row;
  return result;
}

void Tensor::zero() const {
  fill_zero(raw(), bytes());
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.dtype() == dtype() && source.numel() == numel(), "cannot copy {} into {}",
        describe(source), describe(*this));
  copy_bytes(raw(), source.raw(), bytes());
}

Tensor Tensor::clone() const {
  Tensor copy = empty(shape_, dtype_);
  copy.copy_from(*this);
  return copy;
}

template <typename T>
T* Tensor::data() const {
  check(dtype_ == dtype_of<T>, "a tensor {} was read as {}", describe(*this), name_of(dtype_of<T>));
  return reinterpret_cast<T*>(raw());
}

template <typename T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  check(static_cast<std::int64_t>(values.size()) == shape.numel(),
        "{} values cannot fill a tensor of shape {}", values.size(), to_string(shape));
  Tensor tensor = empty(shape, dtype_of<T>);
  copy_bytes(tensor.raw(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  current_stream().synchronize();  // `values` may go away
  return tensor;
}

template <typename T>
std::vector<T> Tensor::to_vector() const {
  std::vector<T> values(static_cast<std::size_t>(numel()));
  copy_bytes(reinterpret_cast<std::byte*>(values.data()),
             reinterpret_cast<const std::byte*>(data<T>()), bytes());
  current_stream().synchronize();
  return values;
}

template <typename T>
T Tensor::item() const {
  check(numel() == 1, "item() needs a tensor of one element, not {}", describe(*this));
  return to_vector<T>()[0];
}

#define TESSERA_INSTANTIATE(T)                                       \
  template T* Tensor::data<T>() const;                               \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&); \
  template std::vector<T> Tensor::to_vector<T>() const;              \
  template T Tensor::item<T>() const;
TESSERA_INSTANTIATE(float)
TESSERA_INSTANTIATE(bfloat16)
TESSERA_INSTANTIATE(float16)
TESSERA_INSTANTIATE(double)
TESSERA_INSTANTIATE(std::int32_t)
TESSERA_INSTANTIATE(std::int64_t)
TESSERA_INSTANTIATE(std::uint8_t)
#undef TESSERA_INSTANTIATE

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "(no tensor)";
  return fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape()));
}

}  // namespace tessera
