// Elementary functions with the same bits on every machine.
//
// No standard fixes the last bit of a C library's sin or log. Initial weights, RoPE's tables,
// losses and learning rates take these functions instead. They add, multiply and divide doubles, and
// IEEE 754 says how each result is rounded. They do without fused multiply-adds: in a program for
// every x86-64 CPU each would be a call.
//
// Errors are in units in the last place (ulp) of the exact result. Rounding alone costs 0.5. So the
// results are the nearest doubles for 99 of 100 arguments, and rounded to float they are the
// nearest floats for all but about one in 10^10.
#pragma once

#include <span>

namespace tessera {

/// Sines and cosines are defined up to here: the angle of RoPE's fastest pair, one radian per token,
/// in the longest context that a model may have.
inline constexpr double kLargestAngle = 0x1p24;

/// sin(x) and cos(x) within 0.58 ulp. Raise Error unless |x| <= kLargestAngle.
double sine(double x);
double cosine(double x);

/// sines[i] = sine(angles[i]) and cosines[i] = cosine(angles[i]), several at a time. The results may not
/// overlap with the angles.
void sines_and_cosines(std::span<const double> angles, double* sines, double* cosines);

/// e^x within 0.53 ulp; 1.1 ulp where the result is subnormal. Infinity above 709.79, 0 below -745.2.
double exponential(double x);

/// ln(x) within 0.51 ulp. -infinity for 0, NaN for negative numbers.
double logarithm(double x);

/// Replaces each value by its logarithm, several at a time. The values are finite and at least 2^-1022.
void logarithms(std::span<double> values);

/// base^exponent for base >= 0, as e^(exponent ln(base)): within 0.53 ulp for results between e^-16
/// and e^16, within 0.9 beyond. 0^exponent is 0, 1 or infinity.
double power(double base, double exponent);

}  // namespace tessera
