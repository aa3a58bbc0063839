// Packing matrices as NF4 (op.h), any part of them, on the host.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/elements.h"
#include "runtime/tensor.h"

namespace tessera {

/// Fills `values`, f32 [n] on the host, with a tensor's elements from `first` on.
using ReadElements = std::function<void(const Tensor& values, std::int64_t first)>;

/// Fills `part`, u8 on any device, with the bytes `bytes` of packed matrices of `shape` [..., R, C], whose
/// elements `read` gives. Reads all of a matrix before its first byte, because its scales have one mean, and
/// then the rows in question.
void nf4_pack(const Tensor& part, const Elements& bytes, const Shape& shape,
              const ReadElements& read);

}  // namespace tessera
