// OpenBLAS, loaded when a process first asks for it: most never do, and the library takes more time
// to load than a program to start.
//
// The library chooses its kernels when it is loaded, from a list of CPUs. A CPU that is newer is not in
// the list: on some with AVX-512, OpenBLAS 0.3.21 multiplies by its kernels for SSE3, at a fifth of its
// rate. So it is loaded with OPENBLAS_CORETYPE set to the CPU's best kernels, unless the environment
// sets one.
#pragma once

#include <string_view>

#include "kernels/matmul/cpu/isa.h"

namespace tessera::cpu {

/// The functions of OpenBLAS that are called here. The two of memory are not in its headers, and
/// another version may lack them: then they are null.
struct OpenBlas {
  /// c [M, N] = alpha a [M, K] b [K, N] + beta c. `order` and `transpose` are kRowMajor, kPlain and kTransposed.
  template <typename T>
  using Gemm = void(int order, int transpose_a, int transpose_b, int M, int N, int K, T alpha,
                    const T* a, int a_row, const T* b, int b_row, T beta, T* c, int c_row);

  Gemm<float>* sgemm = nullptr;
  Gemm<double>* dgemm = nullptr;
  void (*set_num_threads)(int) = nullptr;
  char* (*get_corename)() = nullptr;
  char* (*get_config)() = nullptr;
  void* (*memory_alloc)(int) = nullptr;
  void (*memory_free)(void*) = nullptr;
};

inline constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;  // as in cblas.h

/// Loads the library at the first call. Raises Error where it cannot, as in a program that is linked statically.
const OpenBlas& openblas();

/// The OPENBLAS_CORETYPE with kernels for a CPU of this level. Empty: OpenBLAS has no better ones than
/// those for every CPU.
std::string_view openblas_core_for(Isa isa);

/// The same, if OpenBLAS's kernels for `core` are made for a lower level. Else empty: it may keep them.
/// A core that this program does not know belongs to a newer OpenBLAS, which knows newer CPUs.
std::string_view better_openblas_core(std::string_view core, Isa isa);

}  // namespace tessera::cpu
