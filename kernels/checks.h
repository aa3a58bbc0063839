// The checks that most operations put their arguments through.
//
// Each check raises an Error of one line that names the operation and the arguments, such as
// "add: y is f32 [2, 3] and b is f32 [3, 2]; their shapes must be equal".
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "kernels/observer.h"
#include "kernels/op.h"
#include "runtime/backends.h"

namespace tessera {

/// A tensor under the name that the operation's signature gives it.
struct Argument {
  std::string_view name;
  const Tensor& tensor;
};
/// A list of tensors under its name.
struct ListArgument {
  std::string_view name;
  std::span<const Tensor> tensors;
};

/// All arguments are defined and on one device; none is f64 unless the device is the CPU. Call this
/// check first: the others read the tensors.
void check_on_one_device(std::string_view op, std::initializer_list<Argument> arguments);

/// All arguments have one floating dtype.
void check_same_floating(std::string_view op, std::initializer_list<Argument> arguments);

/// All arguments are on one device and have one floating dtype and one shape.
void check_alike(std::string_view op, std::initializer_list<Argument> arguments);

void check_floating(std::string_view op, const Argument& argument);
void check_dtype(std::string_view op, const Argument& argument, DType dtype);
void check_same_dtype(std::string_view op, const Argument& a, const Argument& b);
/// `a` has the dtype of `b`, or is f32 while `b` has 16 bits: the rule for sums, such as gradients.
void check_same_dtype_or_f32(std::string_view op, const Argument& a, const Argument& b);

void check_rank(std::string_view op, const Argument& argument, int rank);
void check_shape(std::string_view op, const Argument& argument, const Shape& shape);
void check_same_shape(std::string_view op, const Argument& a, const Argument& b);
void check_same_count(std::string_view op, const Argument& a, const Argument& b);

/// No byte of `output` belongs to `input`.
void check_apart(std::string_view op, const Argument& output, const Argument& input);
/// `output` is `input`, byte for byte, or shares no byte with it: the rule for elementwise
/// operations that may work in place.
void check_same_or_apart(std::string_view op, const Argument& output, const Argument& input);

/// `packed` [N, 2 F] holds gate and up of `x` [N, F] = swiglu(packed), in other memory.
void check_gate_up(std::string_view op, const Argument& packed, const Argument& x);

/// outputs[i] and inputs[i] are pairs on one device, with equal element counts and memory of their
/// own. All outputs have one dtype, and all inputs.
void check_pairs(std::string_view op, const ListArgument& outputs, const ListArgument& inputs);

/// No backend of this build can work on the device.
[[noreturn]] void fail_no_kernel(std::string_view op, const Device& device);

/// The end of every operation in op.cpp: calls the device's backend, kCpu or kCuda. A build without
/// CUDA lacks kCuda, and does not call it. The thread's observer sees it.
template <auto* kCpu, auto* kCuda, typename... Arguments>
void run_on(const Device& device, std::string_view op, const Arguments&... arguments) {
  const auto run = [&] {
    if (device.is_cpu()) return kCpu(arguments...);
    if constexpr (kHasCuda) return kCuda(arguments...);
    fail_no_kernel(op, device);
  };
  run_observed(op, run, arguments...);
}

}  // namespace tessera
