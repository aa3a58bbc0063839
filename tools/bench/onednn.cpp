#include "tools/bench/onednn.h"

#if defined(TESSERA_ONEDNN)
#include <fmt/format.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/context.h"

namespace tessera {
namespace {

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, DType dtype,
                          Transpose transpose) {
  using dnnl::memory;
  return {{rows, columns},
          dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32,
          transpose == Transpose::yes ? memory::format_tag::ba : memory::format_tag::ab};
}

std::function<void()> product(const MatmulShape& shape, const Tensor& a, const Tensor& b,
                              const Tensor& c) {
  omp_set_num_threads(context().threads().size());
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto from = matrix(shape.m, shape.k, a.dtype(), shape.transpose_a);
  const auto with = matrix(shape.k, shape.n, b.dtype(), shape.transpose_b);
  const auto to = matrix(shape.m, shape.n, c.dtype(), Transpose::no);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine, from, with, to);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(from, with, to), engine);
#endif
  return [primitive = dnnl::matmul(description), stream = dnnl::stream(engine),
          x = dnnl::memory(from, engine, a.raw()), y = dnnl::memory(with, engine, b.raw()),
          z = dnnl::memory(to, engine, c.raw())]() mutable {
    primitive.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, y}, {DNNL_ARG_DST, z}});
    stream.wait();
  };
}

}  // namespace

std::function<void()> onednn_product(const MatmulShape& shape, const Tensor& a, const Tensor& b,
                                     const Tensor& c) {
  try {
    return product(shape, a, b, c);
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) throw;
    return {};
  }
}

std::string describe_onednn(cpu::Isa isa) {
  const auto has = [](dnnl::cpu_isa level) {
    const int bits = static_cast<int>(level);
    return (static_cast<int>(dnnl::get_effective_cpu_isa()) & bits) == bits;
  };
  const cpu::Isa found = has(dnnl::cpu_isa::avx512_core_amx)    ? cpu::Isa::amx
                         : has(dnnl::cpu_isa::avx512_core_bf16) ? cpu::Isa::avx512_bf16
                         : has(dnnl::cpu_isa::avx512_core)      ? cpu::Isa::avx512
                         : has(dnnl::cpu_isa::avx2)             ? cpu::Isa::avx2
                                                                : cpu::Isa::portable;
  const dnnl_version_t& version = *dnnl_version();
  std::string text = fmt::format("oneDNN {}.{}.{} with {} instructions", version.major,
                                 version.minor, version.patch, enum_name(found));
  if (found < isa && isa <= cpu::Isa::amx) {
    text += fmt::format("; this CPU has {}, so the comparison flatters us", enum_name(isa));
  }
  return text;
}

}  // namespace tessera
#else
namespace tessera {
std::string describe_onednn(cpu::Isa) {
  return {};
}
std::function<void()> onednn_product(const MatmulShape&, const Tensor&, const Tensor&,
                                     const Tensor&) {
  return {};
}
}  // namespace tessera
#endif
