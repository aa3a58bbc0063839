#include "kernels/tree_reduce/op.h"

#include "kernels/checks.h"
#include "runtime/check.h"
#include "runtime/describe.h"

namespace tessera {
namespace {

void check_reducible(const Tensor& source, Reduction reduction) {
  const DType dtype = source.dtype();
  if (reduction == Reduction::maximum) {
    check(dtype == DType::f32, "tree_reduce takes the maximum of f32, not of {}", describe(source));
  } else {
    check(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::i64,
          "tree_reduce cannot sum {}", describe(source));
  }
}

}  // namespace

void tree_reduce(Out result, std::span<const Tensor> sources, Reduction reduction) {
  check(!sources.empty(), "tree_reduce: no sources; it needs at least one");
  const bool widened = result.dtype() == DType::f32 && size_of(sources[0].dtype()) == 2;
  for (const Tensor& source : sources) {
    check_on_one_device("tree_reduce", {{"result", result}, {"a source", source}});
    check(source.dtype() == sources[0].dtype() && source.numel() == result.numel() &&
              (widened || source.dtype() == result.dtype()),
          "tree_reduce cannot reduce {} and {} into {}", describe(sources[0]), describe(source),
          describe(result));
    if (widened) check_apart("tree_reduce", {"result", result}, {"a source", source});
  }
  check_reducible(sources[0], reduction);
  run_on<cpu::tree_reduce, cuda::tree_reduce>(result.device(), "tree_reduce", result, sources,
                                              reduction);
}

}  // namespace tessera
