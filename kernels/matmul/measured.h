// The algorithms of matrix products that a rank has measured on its GPU.
//
// With AlgorithmChoice::measured every kind of product gets the fastest of several algorithms, each of
// which runs for a second.
// They add in different orders. So a run that continues gives the bits of a run that was never
// interrupted only with the same choices.
#pragma once

#include <map>
#include <string>

namespace tessera {

struct MeasuredAlgorithms {
  /// The library, its version and the GPU: "cuBLASLt 130100 on NVIDIA H100 80GB HBM3". Empty on the
  /// CPU.
  std::string made_by;
  /// The library's own description of an algorithm, in hexadecimal digits, by the kind of product.
  std::map<std::string, std::string> choices;
};

/// Those of the calling thread's rank: all that it has measured or was given.
MeasuredAlgorithms measured_algorithms();

/// Gives the rank these choices in the place of its own. Products that they do not name are measured
/// as before. Returns false, and changes nothing, if another library or GPU made them. The choices
/// are used under AlgorithmChoice::measured only.
bool use_measured_algorithms(const MeasuredAlgorithms& algorithms);

namespace cuda {
decltype(tessera::measured_algorithms) measured_algorithms;
decltype(tessera::use_measured_algorithms) use_measured_algorithms;
}  // namespace cuda

}  // namespace tessera
