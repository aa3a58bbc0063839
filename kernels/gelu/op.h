// Gaussian error linear unit, in two forms.
//
// (Hendrycks, Gimpel 2016.)
//
//   tanh    y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))      as in GPT-2
//   exact   y = x P(x) with P(x) = (1 + erf(x / sqrt(2))) / 2, the normal distribution
//
//   any shape; x is saved for backward; dx may be dy
#pragma once

#include "kernels/op.h"
#include "runtime/enum_names.h"

namespace tessera {

enum class GeluForm { tanh, exact };
/// As config.json of GPT-2 names them.
template <>
inline constexpr EnumNames<GeluForm> kEnumNames<GeluForm> = {"activation_function",
                                                             {"gelu_new", "gelu"}};

void gelu_forward(Out y, const Tensor& x, GeluForm form = GeluForm::tanh);
void gelu_backward(Out dx, const Tensor& dy, const Tensor& x, GeluForm form = GeluForm::tanh);

namespace cpu {
decltype(tessera::gelu_forward) gelu_forward;
decltype(tessera::gelu_backward) gelu_backward;
}  // namespace cpu
namespace cuda {
decltype(tessera::gelu_forward) gelu_forward;
decltype(tessera::gelu_backward) gelu_backward;
}  // namespace cuda

}  // namespace tessera
