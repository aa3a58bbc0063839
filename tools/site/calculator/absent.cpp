// Functions of libraries that the calculator lacks. A plan calls none of them, but for the number of cores.
#ifdef __EMSCRIPTEN__
#include <pthread.h>
#include <sched.h>
#include <utf8proc.h>

#include <cerrno>
#endif

#include "kernels/matmul/blas_buffers.h"
#include "kernels/matmul/openblas.h"
#include "models/tokenizers/normalizers.h"
#include "models/tokenizers/regex.h"
#include "runtime/check.h"
#include "tools/measure/matmul_rate.h"

namespace tessera {
namespace {

[[noreturn]] void absent(const char* name) {
  throw Error(fmt::format("no {} here", name));
}

}  // namespace

namespace cpu {

BlasBuffers::BlasBuffers() : threads_(1) {}
BlasBuffers::~BlasBuffers() = default;
void multiply_by_openblas(std::span<const Product>, const ProductList&) {
  absent("OpenBLAS");
}

}  // namespace cpu

double matmul_rate(const std::vector<MatmulShape>&, DType, int, int) {
  absent("measurement");
}
int gpus_of(const Device&, int) {
  absent("measurement");
}
std::optional<double> peak_matmul_rate(const Device&, int, DType) {
  absent("measurement");
}

std::vector<Normalizer> make_normalizers(const nlohmann::json&) {
  absent("tokenizer");
}
Normalizer make_replacement(const nlohmann::json&, const std::string&) {
  absent("tokenizer");
}

Regex::Regex(const std::string&) {
  absent("tokenizer");
}
Regex::Search::Search(const Regex& regex, std::string_view) : regex_(regex) {
  absent("tokenizer");
}
Regex::Search::~Search() = default;
std::optional<Regex::Match> Regex::Search::next(std::size_t) {
  absent("tokenizer");
}
std::vector<std::string_view> Regex::Search::groups() const {
  absent("tokenizer");
}
std::string replaced(std::string_view, const Regex&, std::string_view) {
  absent("tokenizer");
}

}  // namespace tessera

#ifdef __EMSCRIPTEN__
extern "C" {
// allowed_cores() (runtime/cores.h) is then empty, and no thread can be bound.
int pthread_setaffinity_np(pthread_t, std::size_t, const cpu_set_t*) {
  return ENOSYS;
}
int sched_getaffinity(pid_t, std::size_t, cpu_set_t*) {
  return -1;
}
int __sched_cpucount(std::size_t, const cpu_set_t*) {
  return 0;
}
utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t c) {
  return c;
}
utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t c) {
  return c;
}
utf8proc_ssize_t utf8proc_encode_char(utf8proc_int32_t, utf8proc_uint8_t*) {
  return 0;
}
}
#endif
