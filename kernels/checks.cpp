#include "kernels/checks.h"

#include <fmt/core.h>

#include <string>

#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

bool is_16_bit(DType dtype) {
  return is_floating(dtype) && size_of(dtype) == 2;
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.bytes() > 0 && b.bytes() > 0 && a.storage() == b.storage() &&
         a.raw() < b.raw() + b.bytes() && b.raw() < a.raw() + a.bytes();
}

}  // namespace

void check_on_one_device(std::string_view op, std::initializer_list<Argument> arguments) {
  const Argument* first = nullptr;
  for (const Argument& argument : arguments) {
    if (!argument.tensor.defined())
      fail("{}: {} is an undefined tensor; allocate it first", op, argument.name);
    if (first == nullptr) first = &argument;
    if (!argument.tensor.device().is_cpu() && argument.tensor.dtype() == DType::f64) {
      fail("{}: {} is {} on {}; f64 is for the CPU only", op, argument.name,
           describe(argument.tensor), to_string(argument.tensor.device()));
    }
    if (argument.tensor.device() == first->tensor.device()) continue;
    fail("{}: {} is on {} and {} on {}; all arguments must be on one device", op, first->name,
         to_string(first->tensor.device()), argument.name, to_string(argument.tensor.device()));
  }
}

void check_same_floating(std::string_view op, std::initializer_list<Argument> arguments) {
  for (const Argument& argument : arguments) {
    check_floating(op, argument);
    check_same_dtype(op, *arguments.begin(), argument);
  }
}

void check_alike(std::string_view op, std::initializer_list<Argument> arguments) {
  check_on_one_device(op, arguments);
  check_same_floating(op, arguments);
  for (const Argument& other : arguments) check_same_shape(op, *arguments.begin(), other);
}

void check_floating(std::string_view op, const Argument& argument) {
  if (is_floating(argument.tensor.dtype())) return;
  fail("{}: {} is {}; its dtype must be f32, bf16, f16 or f64", op, argument.name,
       describe(argument.tensor));
}

void check_dtype(std::string_view op, const Argument& argument, DType dtype) {
  if (argument.tensor.dtype() == dtype) return;
  fail("{}: {} is {}; its dtype must be {}", op, argument.name, describe(argument.tensor),
       name_of(dtype));
}

void check_same_dtype(std::string_view op, const Argument& a, const Argument& b) {
  if (a.tensor.dtype() == b.tensor.dtype()) return;
  fail("{}: {} is {} and {} is {}; their dtypes must be equal", op, a.name, describe(a.tensor),
       b.name, describe(b.tensor));
}

void check_same_dtype_or_f32(std::string_view op, const Argument& a, const Argument& b) {
  const bool wider = a.tensor.dtype() == DType::f32 && is_16_bit(b.tensor.dtype());
  if (wider || a.tensor.dtype() == b.tensor.dtype()) return;
  fail("{}: {} is {} and {} is {}; {} must have the same dtype, or f32 if {} has 16 bits", op,
       a.name, describe(a.tensor), b.name, describe(b.tensor), a.name, b.name);
}

void check_rank(std::string_view op, const Argument& argument, int rank) {
  if (argument.tensor.rank() == rank) return;
  fail("{}: {} is {}; it must have {} dimensions", op, argument.name, describe(argument.tensor),
       rank);
}

void check_shape(std::string_view op, const Argument& argument, const Shape& shape) {
  if (argument.tensor.shape() == shape) return;
  fail("{}: {} is {}; its shape must be {}", op, argument.name, describe(argument.tensor),
       to_string(shape));
}

void check_same_shape(std::string_view op, const Argument& a, const Argument& b) {
  if (a.tensor.shape() == b.tensor.shape()) return;
  fail("{}: {} is {} and {} is {}; their shapes must be equal", op, a.name, describe(a.tensor),
       b.name, describe(b.tensor));
}

void check_same_count(std::string_view op, const Argument& a, const Argument& b) {
  if (a.tensor.numel() == b.tensor.numel()) return;
  fail("{}: {} is {} and {} is {}; their element counts must be equal", op, a.name,
       describe(a.tensor), b.name, describe(b.tensor));
}

void check_apart(std::string_view op, const Argument& output, const Argument& input) {
  if (!overlap(output.tensor, input.tensor)) return;
  fail("{}: {} overlaps {}; give it memory of its own", op, output.name, input.name);
}

void check_same_or_apart(std::string_view op, const Argument& output, const Argument& input) {
  const Tensor &out = output.tensor, &in = input.tensor;
  const bool same = out.raw() == in.raw() && out.bytes() == in.bytes();
  if (same || !overlap(out, in)) return;
  fail("{}: {} overlaps {} in part; it must be {} or memory of its own", op, output.name,
       input.name, input.name);
}

void check_pairs(std::string_view op, const ListArgument& outputs, const ListArgument& inputs) {
  check(outputs.tensors.size() == inputs.tensors.size(),
        "{}: {} has {} tensors and {} has {}; they must have equally many", op, outputs.name,
        outputs.tensors.size(), inputs.name, inputs.tensors.size());
  const auto name = [](const ListArgument& list, std::size_t i) {
    return fmt::format("{}[{}]", list.name, i);
  };
  const std::string first_output = name(outputs, 0), first_input = name(inputs, 0);
  for (std::size_t i = 0; i < outputs.tensors.size(); ++i) {
    const std::string output_name = name(outputs, i), input_name = name(inputs, i);
    const Argument output{output_name, outputs.tensors[i]}, input{input_name, inputs.tensors[i]};
    const Argument first{first_output, outputs.tensors[0]};
    check_on_one_device(op, {first, output, input});
    check_same_dtype(op, output, first);
    check_same_dtype(op, input, {first_input, inputs.tensors[0]});
    check_same_count(op, output, input);
    check_apart(op, output, input);
  }
}

void check_gate_up(std::string_view op, const Argument& packed, const Argument& x) {
  check_on_one_device(op, {x, packed});
  check_same_dtype(op, packed, x);
  check_rank(op, x, 2);
  check_shape(op, packed, {x.tensor.size(0), 2 * x.tensor.size(1)});
  check_apart(op, packed, x);
}

void fail_no_kernel(std::string_view op, const Device& device) {
  fail("{}: no kernel for device {} in this build", op, to_string(device));
}

}  // namespace tessera
