#include "runtime/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/backends.h"
#include "runtime/capture.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/backend.h"
#include "runtime/describe.h"
#include "runtime/dry_gpu.h"

namespace tessera {
namespace {

// Messages with shapes are built inside an `if`: `check` would build its arguments on every call.

void check_defined(const Tensor& tensor, const char* action) {
  check(tensor.defined(), "cannot {} an undefined tensor", action);
}

std::size_t bytes_of(const Shape& shape, DType dtype) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(shape.numel(), size_of(dtype), &bytes)) {
    fail("a tensor {} {} has more than 2^{} bytes", name_of(dtype), to_string(shape),
         std::numeric_limits<std::size_t>::digits);
  }
  return bytes;
}

/// Values of up to this many bytes are copied to pinned memory first, so the host does not wait for
/// the GPU: a batch's ids must not hold up the host, which is ahead.
constexpr std::size_t kMostStagedBytes = std::size_t{4} << 20;

/// An address in host or device memory.
struct Location {
  std::byte* data;
  Device device;
};

bool overlap(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.raw() < b.raw() + b.bytes() &&
         b.raw() < a.raw() + a.bytes();
}

Location location_of(const Tensor& tensor) {
  return {tensor.raw(), tensor.device()};
}
Location on_host(const void* data) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), Device{}};
}

// The only function that moves a tensor's bytes without a kernel. memmove, because both may be views
// of one storage.
void copy_bytes(const Location& to, const Location& from, std::size_t bytes) {
  if constexpr (kHasCuda) {
    if (!to.device.is_cpu() || !from.device.is_cpu()) {
      return cuda::copy(to.data, from.data, bytes, to.device.is_cpu() || from.device.is_cpu());
    }
  }
  if (context().is_dry()) {
    if (to.device != from.device) log_work(host_copy(static_cast<double>(bytes)));
    return;
  }
  if (bytes > 0) std::memmove(to.data, from.data, bytes);
}

void zero_bytes(const Location& at, std::size_t bytes) {
  if constexpr (kHasCuda) {
    if (!at.device.is_cpu()) return cuda::zero(at.data, bytes);
  }
  if (!context().is_dry()) std::memset(at.data, 0, bytes);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  return view(Storage::allocate(bytes_of(shape, dtype)), 0, shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  tensor.zero();
  return tensor;
}

Tensor Tensor::empty_on_host(const Shape& shape, DType dtype) {
  return view(Storage::allocate_on_host(bytes_of(shape, dtype)), 0, shape, dtype);
}

Tensor Tensor::full(const Shape& shape, DType dtype, double value) {
  const auto count = static_cast<std::size_t>(shape.numel());
  if (dtype == DType::f64) return from(std::vector<double>(count, value), shape);
  check(dtype == DType::f32, "the dtype is {}; a tensor is filled with a number in f32 or f64",
        name_of(dtype));
  return from(std::vector<float>(count, static_cast<float>(value)), shape);
}

Tensor Tensor::view(Storage storage, std::size_t byte_offset, const Shape& shape, DType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  if (byte_offset > storage.bytes() || bytes > storage.bytes() - byte_offset) {
    fail("a tensor {} {} at byte {} does not fit a storage of {} bytes", name_of(dtype),
         to_string(shape), byte_offset, storage.bytes());
  }
  Tensor tensor;
  tensor.storage_ = std::move(storage);
  tensor.byte_offset_ = byte_offset;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  return tensor;
}

Tensor Tensor::reshape(const Shape& shape) const {
  check_defined(*this, "reshape");
  if (shape.numel() != numel()) {
    fail("cannot reshape {} to {}: {} elements are not {}", describe(*this), to_string(shape),
         numel(), shape.numel());
  }
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  if (rank() < 1 || begin < 0 || begin > end || end > shape_[0]) {
    fail("rows [{}, {}) are not in {}", begin, end, describe(*this));
  }
  Tensor result = *this;
  result.shape_ = shape_.with(0, end - begin);
  const std::size_t row = shape_[0] == 0 ? 0 : bytes() / static_cast<std::size_t>(shape_[0]);
  result.byte_offset_ += static_cast<std::size_t>(begin) * row;
  return result;
}

void Tensor::zero() const {
  check_defined(*this, "zero");
  if (bytes() == 0) return;
  current_stream().enqueue([self = *this] { zero_bytes(location_of(self), self.bytes()); });
}

void Tensor::copy_from(const Tensor& source) const {
  if (!defined() || !source.defined() || source.dtype() != dtype() || source.numel() != numel()) {
    fail("cannot copy {} into {}", describe(source), describe(*this));
  }
  // A GPU copies in no particular order: overlapping tensors go through a temporary.
  if (!device().is_cpu() && overlap(*this, source)) return copy_from(source.clone());
  // The queued work holds both handles. Otherwise a block could be released and handed out to work
  // that runs before this copy.
  current_stream().enqueue(
      [self = *this, source] { copy_bytes(location_of(self), location_of(source), self.bytes()); });
}

Tensor Tensor::clone() const {
  check_defined(*this, "clone");
  Tensor copy = empty(shape_, dtype_);
  copy.copy_from(*this);
  return copy;
}

Tensor Tensor::to_host() const {
  check_defined(*this, "copy");
  if (device() == Device{}) return *this;
  check_host_may_wait();
  Tensor copy = empty_on_host(shape_, dtype_);
  copy.copy_from(*this);
  current_stream().synchronize();
  return copy;
}

template <typename T>
T* Tensor::data() const {
  if (dtype_ != dtype_of<T>) {
    fail("a tensor {} was read as {}", describe(*this), name_of(dtype_of<T>));
  }
  return reinterpret_cast<T*>(raw());
}

template <typename T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  if (static_cast<std::int64_t>(values.size()) != shape.numel()) {
    fail("{} values cannot fill a tensor of shape {}", values.size(), to_string(shape));
  }
  Tensor tensor = empty(shape, dtype_of<T>);
  if (!tensor.device().is_cpu() && values.size_bytes() <= kMostStagedBytes) {
    const Tensor staged = empty_on_host(shape, dtype_of<T>);
    std::copy(values.begin(), values.end(), staged.template data<T>());
    tensor.copy_from(staged);
    return tensor;
  }
  current_stream().enqueue(
      [=] { copy_bytes(location_of(tensor), on_host(values.data()), values.size_bytes()); });
  current_stream().synchronize();  // `values` may go away
  return tensor;
}

template <typename T>
std::vector<T> Tensor::to_vector() const {
  check_defined(*this, "read");
  data<T>();  // checks the dtype
  check_host_may_wait();
  std::vector<T> values(static_cast<std::size_t>(numel()));
  current_stream().enqueue(
      [&] { copy_bytes(on_host(values.data()), location_of(*this), bytes()); });
  current_stream().synchronize();
  return values;
}

template <typename T>
T Tensor::item() const {
  if (numel() != 1) fail("item() needs a tensor of one element, not {}", describe(*this));
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

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "(no tensor)";
  return fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape()));
}

}  // namespace tessera
