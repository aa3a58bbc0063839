#include "runtime/emulation/toolkit/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/emulation/device/narrow_sum.h"
#include "runtime/emulation/toolkit/ordered_product.h"
#include "runtime/half.h"

namespace tessera::emulation {
namespace {

/// A number of the OCP 8-bit specification: a sign, an exponent and `mantissa_bits`.
float of_8_bits(std::uint8_t code, int mantissa_bits) {
  const int magnitude = code & 0x7f, exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude - (exponent << mantissa_bits);
  const int bias = mantissa_bits == 3 ? 7 : 15;
  const bool top = mantissa_bits == 3 ? magnitude == 0x7f : exponent == 31;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                              : std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                                           exponent - bias - mantissa_bits);
  if (top) value = mantissa_bits == 2 && mantissa == 0 ? INFINITY : NAN;
  return code >= 0x80 ? -value : value;
}

float read(const void* data, cudaDataType_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const bfloat16*>(data)[i]);
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const float16*>(data)[i]);
    case CUDA_R_8F_E4M3:
      return of_8_bits(static_cast<const std::uint8_t*>(data)[i], 3);
    case CUDA_R_8F_E5M2:
      return of_8_bits(static_cast<const std::uint8_t*>(data)[i], 2);
    default:
      return static_cast<const float*>(data)[i];
  }
}

void write(void* data, cudaDataType_t type, std::int64_t i, float value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<bfloat16*>(data)[i] = bfloat16(value);
      break;
    case CUDA_R_16F:
      static_cast<float16*>(data)[i] = float16(value);
      break;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

/// op(x) as floats, row-major [rows, columns]. Reads only the matrix's own elements.
std::vector<float> widened(const void* data, const Layout& x, bool transposed, bool tf32) {
  const std::int64_t rows = transposed ? x.columns : x.rows;
  const std::int64_t columns = transposed ? x.rows : x.columns;
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t column = 0; column < x.columns; ++column) {
    for (std::int64_t row = 0; row < x.rows; ++row) {
      float value = read(data, x.type, column * x.leading_dimension + row);
      if (tf32) {
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000u);
      }
      values[transposed ? column * columns + row : row * columns + column] = value;
    }
  }
  return values;
}

/// With the accuracy of the hardware's tanh (tanh.approx.f32), which fused gelus use: 11 bits.
double tanh_of_gelu(double x) {
  const double exact = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return static_cast<float>(float16(static_cast<float>(exact)));
}
float gelu(double x) {
  return static_cast<float>(0.5 * x * (1.0 + tanh_of_gelu(x)));
}
float gelu_derivative(double x) {
  const double t = tanh_of_gelu(x);
  const double slope = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
  return static_cast<float>(0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
}

class Product {
 public:
  Product(const Problem& problem, const Matrices& at, float alpha, float beta)
      : p_(problem), at_(at), alpha_(alpha), beta_(beta) {
    for (const float* scale : {p_.description.a_scale, p_.description.b_scale}) {
      if (scale != nullptr && !p_.description.has_blocks()) alpha_ *= *scale;
    }
    const bool tf32 = p_.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    a_ = widened(at.a, p_.a, p_.description.transpose_a == CUBLAS_OP_T, tf32);
    b_ = widened(at.b, p_.b, p_.description.transpose_b == CUBLAS_OP_T, tf32);
  }

  void run(Sum sum, void* workspace) const {
    const std::int64_t half = p_.k() / 2;
    std::vector<float> total;
    if (p_.description.has_blocks()) {
      total = sum_of_blocks();
    } else if (sum == Sum::whole) {
      total = partial_sum(0, p_.k());
    } else if (sum == Sum::in_halves) {
      const std::vector<float> first = partial_sum(0, half);
      std::memcpy(workspace, first.data(), first.size() * sizeof(float));
      total = partial_sum(half, p_.k());
      const auto* const waiting = static_cast<const float*>(workspace);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += waiting[i];
    } else {
      const std::vector<float> first = partial_sum(0, half);
      total = partial_sum(half, p_.k());
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += rounded(first[i]);
    }
    finish(total);
  }

 private:
  /// The sum over k in [begin, end) of op(A) op(B), row-major [m, n].
  std::vector<float> partial_sum(std::int64_t begin, std::int64_t end) const {
    std::vector<float> sum(static_cast<std::size_t>(p_.m() * p_.n()));
    const float *const a = a_.data() + begin, *const b = b_.data() + begin * p_.n();
    if (is_fp8(p_.a.type) && p_.narrow_sums) {
      for (std::int64_t i = 0; i < p_.m() * p_.n(); ++i) {
        sum[i] = narrow_sum(a + i / p_.n() * p_.k(), b + i % p_.n(), p_.n(), end - begin);
      }
    } else {
      ordered_product(sum.data(), {a, p_.m(), end - begin, p_.k()},
                      {b, end - begin, p_.n(), p_.n()});
    }
    for (float& value : sum) value *= alpha_;
    return sum;
  }

  /// Each sum over 128 depths times its two scales, added up.
  std::vector<float> sum_of_blocks() const {
    const Description& description = p_.description;
    const auto scale = [&](const float* scales, std::int32_t mode, std::int64_t rows,
                           std::int64_t row, std::int64_t block) {
      if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return scales[block * rows + row];
      return scales[row / 128 * ((p_.k() + 511) / 512 * 4) + block];
    };
    std::vector<float> total(static_cast<std::size_t>(p_.m() * p_.n()));
    for (std::int64_t begin = 0; begin < p_.k(); begin += 128) {
      const std::vector<float> sum = partial_sum(begin, std::min(p_.k(), begin + 128));
      for (std::int64_t i = 0; i < p_.m() * p_.n(); ++i) {
        total[i] +=
            sum[i] *
            scale(description.a_scale, description.a_scale_mode, p_.m(), i / p_.n(), begin / 128) *
            scale(description.b_scale, description.b_scale_mode, p_.n(), i % p_.n(), begin / 128);
      }
    }
    return total;
  }

  float rounded(float value) const {
    alignas(4) std::byte stored[4];
    write(stored, p_.d.type, 0, value);
    return read(stored, p_.d.type, 0);
  }

  void finish(const std::vector<float>& sum) const {
    const Description& description = p_.description;
    for (std::int64_t column = 0; column < p_.n(); ++column) {
      for (std::int64_t row = 0; row < p_.m(); ++row) {
        const std::int64_t at = column * p_.d.leading_dimension + row;
        const std::int64_t aux = column * description.aux_leading_dimension + row;
        float value = sum[row * p_.n() + column];
        if (beta_ != 0.0f) value += beta_ * read(at_.c, p_.d.type, at);
        if (description.epilogue == CUBLASLT_EPILOGUE_BIAS ||
            description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          value += read(description.bias, p_.d.type, row);
        }
        if (description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          write(description.aux, p_.d.type, aux, value);
          value = gelu(value);
        }
        if (description.epilogue == CUBLASLT_EPILOGUE_DGELU) {
          value *= gelu_derivative(read(description.aux, p_.d.type, aux));
        }
        write(at_.d, p_.d.type, at, value);
      }
    }
  }

  Problem p_;
  Matrices at_;
  float alpha_, beta_;
  std::vector<float> a_, b_;
};

}  // namespace

std::size_t size_of(cudaDataType_t type) {
  return is_fp8(type) ? 1 : type == CUDA_R_32F ? 4 : 2;
}

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

std::uint64_t workspace_bytes(const Problem& problem, Sum sum) {
  if (sum != Sum::in_halves) return 0;
  return sizeof(float) * static_cast<std::uint64_t>(problem.m() * problem.n());
}

void multiply(const Problem& p, const Matrices& at, float alpha, float beta, Sum sum,
              void* workspace) {
  const auto step = [](const Layout& x, int batch) {
    return static_cast<std::size_t>(x.batch_stride * batch) * size_of(x.type);
  };
  for (int batch = 0; batch < p.d.batches; ++batch) {
    const Matrices here{at.a + step(p.a, batch), at.b + step(p.b, batch), at.c + step(p.d, batch),
                        at.d + step(p.d, batch)};
    Product(p, here, alpha, beta).run(sum, workspace);
  }
}

}  // namespace tessera::emulation
