// The checks that most operations put their arguments through.
//
// Each raises an Error of one line that names the operation and the arguments, such as
// "add: y is f32 [2, 3] and b is f32 [3, 2]; their shapes must be equal".
#pragma once

#include <initializer_list>
#include <string_view>

#include "kernels/op.h"
#include "runtime/backends.h"

namespace tessera {

/// A tensor under the name that the operation's signature gives it.
struct Argument {
  std::string_view name;
  const Tensor& tensor;
};

/// Every argument is a tensor, and all are on one device; none is f64 unless that is the CPU. Comes
/// first: the other checks read the tensors.
void check_on_one_device(std::string_view op, std::initializer_list<Argument> arguments);

/// All arguments have one floating dtype.
void check_same_floating(std::string_view op, std::initializer_list<Argument> arguments);

void check_floating(std::string_view op, const Argument& argument);
void check_dtype(std::string_view op, const Argument& argument, DType dtype);
void check_same_dtype(std::string_view op, const Argument& a, const Argument& b);
/// `a` has the dtype of `b`, or is f32 beside a 16-bit `b`: the rule for what is summed up.
void check_same_dtype_or_f32(std::string_view op, const Argument& a, const Argument& b);

void check_rank(std::string_view op, const Argument& argument, int rank);
void check_shape(std::string_view op, const Argument& argument, const Shape& shape);
void check_same_shape(std::string_view op, const Argument& a, const Argument& b);

/// No byte of `output` belongs to `input`.
void check_apart(std::string_view op, const Argument& output, const Argument& input);
/// `output` is `input`, byte for byte, or shares nothing with it: the rule for elementwise
/// operations that may work in place.
void check_same_or_apart(std::string_view op, const Argument& output, const Argument& input);

/// What op.cpp ends with when no backend took the call.
[[noreturn]] void fail_no_kernel(std::string_view op, const Device& device);

}  // namespace tessera
