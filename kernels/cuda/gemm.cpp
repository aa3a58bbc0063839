#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/fastest.h"
#include "kernels/matmul/measured.h"
#include "kernels/matmul/options.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/stream.h"
#include "runtime/tensor.h"

namespace tessera::cuda {
namespace {

void check_library(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("{}: {}", call, cublasLtGetStatusName(status));
}

/// An object of the library, destroyed with its owner.
template <typename T, cublasStatus_t (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (object_) destroy(object_);
  }
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  T* address() { return &object_; }
  T get() const { return object_; }

 private:
  T object_ = nullptr;
};

using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// ---- Our terms in the library's

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    case DType::e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

std::int32_t scale_mode(Fp8Blocks blocks) {
  return blocks == Fp8Blocks::vectors ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                      : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

/// The library's A is our b and its rows are our columns.
cublasLtEpilogue_t epilogue_of(const Gemm& gemm) {
  switch (gemm.epilogue) {
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::bias_gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

template <typename T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_library(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value),
                "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  check_library(cublasLtMatrixLayoutSetAttribute(layout.get(), attribute, &value, sizeof value),
                "cublasLtMatrixLayoutSetAttribute");
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check_library(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
      "cublasLtMatmulPreferenceSetAttribute");
}

/// A row-major matrix as stored. To the library it has `columns` rows.
Layout layout_of(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                 std::int64_t batch) {
  Layout layout;
  check_library(cublasLtMatrixLayoutCreate(
                    layout.address(), data_type(dtype), static_cast<std::uint64_t>(columns),
                    static_cast<std::uint64_t>(rows), stride ? stride : columns),
                "cublasLtMatrixLayoutCreate");
  if (batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
  }
  return layout;
}

// ---- Alignment: the algorithms of a shape depend on it, too

/// The most that is reported to the library: a load of one thread, a row of a bulk copy. A greater
/// alignment is not reported although it may exist. It depends on where a strategy places a weight
/// (16 elements are guaranteed), and with it the choice of algorithm, and the bits.
constexpr std::uint32_t kFullAlignment = 16;

/// The largest power of two, up to 16, that divides a pointer and the bytes to the next matrix.
std::uint32_t alignment_of(const void* pointer, std::size_t step = 0) {
  const auto bits = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pointer) | step);
  const std::uint32_t bounded = bits | kFullAlignment;
  return bounded & (~bounded + 1);
}

struct Alignments {
  std::uint32_t a, b, c;
  auto operator<=>(const Alignments&) const = default;

  Alignments(const Gemm& g, const GemmMatrices& at)
      : a(alignment_of(at.a, step(g, g.M * g.K, g.in))),
        b(alignment_of(at.b, step(g, g.K * g.N, g.in_b))),
        c(std::min(alignment_of(at.c, step(g, g.M * g.N, g.out)), alignment_of(at.addend))) {}

 private:
  static std::size_t step(const Gemm& g, std::int64_t elements, DType dtype) {
    return g.batch > 1 ? static_cast<std::size_t>(elements) * size_of(dtype) : 0;
  }
};

/// The library cannot be told how bias and aux are aligned. An epilogue may assume that they are.
bool suits_epilogue(const GemmMatrices& at) {
  return alignment_of(at.bias) == kFullAlignment && alignment_of(at.aux) == kFullAlignment;
}

struct HeldMultiprocessors {
  int count = 0;
};

auto key_of(const Gemm& g, const Alignments& alignments) {
  return std::tuple(g.M, g.N, g.K, g.transpose_a, g.transpose_b, g.accumulate, g.in, g.in_b, g.out,
                    g.a_blocks, g.b_blocks, g.a_stride, g.b_stride, g.c_stride, g.batch, g.epilogue,
                    alignments, held_multiprocessors());
}

bool rounds_to_tf32(const Gemm& g) {
  return g.in == DType::f32 && matmul_options().tf32;
}

/// The kind of product as text: "bf16 [1024, 3072] = bf16 [1024, 768] [768, 3072]^T, bias_gelu, ...".
std::string text_of(const Gemm& g, const Alignments& alignments) {
  return fmt::format(
      "{} [{}, {}] {} {}{} [{}, {}]{} {}[{}, {}]{}{}, strides {} {} {}, batch {}, {}, aligned {} "
      "{} {}{}",
      name_of(g.out), g.M, g.N, g.accumulate ? "+=" : "=", name_of(g.in),
      rounds_to_tf32(g) ? " (tf32)" : "", g.M, g.K, g.transpose_a ? "^T" : "",
      g.in_b == g.in ? "" : fmt::format("{} ", name_of(g.in_b)), g.K, g.N,
      g.transpose_b ? "^T" : "",
      g.a_blocks == Fp8Blocks::tensor
          ? ""
          : fmt::format(", scales of {} and {}", enum_name(g.a_blocks), enum_name(g.b_blocks)),
      g.a_stride, g.b_stride, g.c_stride, g.batch, enum_name(g.epilogue), alignments.a,
      alignments.b, alignments.c,
      held_multiprocessors() == 0
          ? ""
          : fmt::format(", {} multiprocessors held", held_multiprocessors()));
}

// ---- One kind of product, ready to be run

/// The description of a kind of product in the library's types.
struct Problem {
  Description description;
  Layout a, b, c;

  explicit Problem(const Gemm& g)
      : a(layout_of(g.in, g.transpose_a ? g.K : g.M, g.transpose_a ? g.M : g.K, g.a_stride,
                    g.batch)),
        b(layout_of(g.in_b, g.transpose_b ? g.N : g.K, g.transpose_b ? g.K : g.N, g.b_stride,
                    g.batch)),
        c(layout_of(g.out, g.M, g.N, g.c_stride, g.batch)) {
    const cublasComputeType_t compute =
        rounds_to_tf32(g) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_library(cublasLtMatmulDescCreate(description.address(), compute, CUDA_R_32F),
                  "cublasLtMatmulDescCreate");
    const auto operation = [](bool transposed) {
      return static_cast<std::int32_t>(transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(g.transpose_b));
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(g.transpose_a));
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue_of(g)));
    if (g.epilogue == Epilogue::bias_gelu || g.epilogue == Epilogue::gelu_backward) {
      set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.N);
    }
    // The library's A is our b.
    if (g.b_blocks != Fp8Blocks::tensor) {
      set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(g.b_blocks));
      set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(g.a_blocks));
    }
    if (held_multiprocessors() == 0) return;
    const int all = device_properties(context().device().index).multiprocessors;
    set(description, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
        std::int32_t{std::max(1, all - held_multiprocessors())});
  }

  void point_to(const GemmMatrices& at) const {
    if (at.bias) set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (at.aux) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
    // The library's A is our b.
    if (at.b_scale) set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.b_scale);
    if (at.a_scale) set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.a_scale);
  }
};

using Algorithm = cublasLtMatmulAlgo_t;

/// An algorithm is 64 bytes without pointers. The library takes them back if its version is the same.
std::string digits_of(const Algorithm& algorithm) {
  std::string digits;
  for (const std::uint64_t word : algorithm.data) digits += fmt::format("{:016x}", word);
  return digits;
}
/// No value if the text is not one of digits_of().
std::optional<Algorithm> algorithm_of(std::string_view digits) {
  Algorithm algorithm = {};
  if (digits.size() != 16 * std::size(algorithm.data)) return std::nullopt;
  for (std::uint64_t& word : algorithm.data) {
    const char* const end = digits.data() + 16;
    const auto [stop, error] = std::from_chars(digits.data(), end, word, 16);
    if (error != std::errc() || stop != end) return std::nullopt;
    digits.remove_prefix(16);
  }
  return algorithm;
}

struct Plan {
  Problem problem;
  Algorithm algorithm;
};

/// The library's suggestions for a problem, its favourite first. None if it cannot do it.
std::vector<Algorithm> suggestions(cublasLtHandle_t handle, const Problem& problem,
                                   const Alignments& alignments, int most) {
  Preference preference;
  check_library(cublasLtMatmulPreferenceCreate(preference.address()),
                "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kGemmWorkspaceBytes});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.c);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, problem.description.get(), problem.b.get(), problem.a.get(), problem.c.get(),
      problem.c.get(), preference.get(), most, results.data(), &found);
  std::vector<Algorithm> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  }
  return algorithms;
}

// ---- The plans and workspaces of a rank

class Library {
 public:
  Library() { check_library(cublasLtCreate(handle_.address()), "cublasLtCreate"); }

  bool run(const Gemm& gemm, const GemmMatrices& at) {
    if (!suits_epilogue(at)) return false;
    const Alignments alignments(gemm, at);
    const Key key = key_of(gemm, alignments);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, make_plan(gemm, at, alignments)).first;
    const std::optional<Plan>& plan = found->second;
    if (!plan) return false;
    plan->problem.point_to(at);
    check_library(launch(plan->problem, plan->algorithm, at, at.c, gemm.accumulate),
                  "cublasLtMatmul");
    return true;
  }

  MeasuredAlgorithms measured() const { return {.made_by = name(), .choices = choices_}; }
  bool use(const MeasuredAlgorithms& algorithms);

 private:
  using Key = decltype(key_of(std::declval<Gemm>(), std::declval<Alignments>()));

  std::optional<Plan> make_plan(const Gemm& gemm, const GemmMatrices& at,
                                const Alignments& alignments);
  /// The library, its version and the GPU.
  static std::string name();
  /// The algorithm of choices_. Raises Error if the library does not take it.
  std::optional<Algorithm> known_choice(const Problem& problem, const std::string& name);
  Algorithm fastest(const Problem& problem, const std::vector<Algorithm>& candidates,
                    const Gemm& gemm, const GemmMatrices& at);

  /// c = op(a) op(b), plus at.c if accumulating.
  cublasStatus_t launch(const Problem& problem, const Algorithm& algorithm, const GemmMatrices& at,
                        void* c, bool accumulate) {
    const float alpha = 1.0f, beta = accumulate ? 1.0f : 0.0f;
    void* const partial_sums = workspace();
    if (context().is_dry()) return CUBLAS_STATUS_SUCCESS;
    return cublasLtMatmul(handle_.get(), problem.description.get(), &alpha, at.b, problem.b.get(),
                          at.a, problem.a.get(), &beta, at.addend ? at.addend : at.c,
                          problem.c.get(), c, problem.c.get(), &algorithm, partial_sums,
                          kGemmWorkspaceBytes, native(current_stream()));
  }

  /// One for each stream: products on two streams may run at the same time.
  void* workspace() {
    Tensor& memory = workspaces_[current_stream().id()];
    if (!memory.defined()) {
      const CategoryScope scope(Category::workspace);
      memory = Tensor::empty({static_cast<std::int64_t>(kGemmWorkspaceBytes)}, DType::u8);
    }
    return memory.raw();
  }

  Handle handle_;
  std::map<Key, std::optional<Plan>> plans_;
  std::map<std::string, std::string> choices_;  // those of MeasuredAlgorithms
  std::map<int, Tensor> workspaces_;
};

std::string Library::name() {
  return fmt::format("cuBLASLt {} on {}", cublasLtGetVersion(),
                     device_properties(context().device().index).name);
}

bool Library::use(const MeasuredAlgorithms& algorithms) {
  if (algorithms.made_by != name()) return false;
  choices_ = algorithms.choices;
  plans_.clear();
  return true;
}

std::optional<Algorithm> Library::known_choice(const Problem& problem, const std::string& name) {
  const auto found = choices_.find(name);
  if (found == choices_.end()) return std::nullopt;
  const std::optional<Algorithm> algorithm = algorithm_of(found->second);
  cublasLtMatmulHeuristicResult_t result = {};
  const bool suits =
      algorithm &&
      cublasLtMatmulAlgoCheck(handle_.get(), problem.description.get(), problem.b.get(),
                              problem.a.get(), problem.c.get(), problem.c.get(), &*algorithm,
                              &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= kGemmWorkspaceBytes;
  check(suits, "{} does not take the algorithm that it chose for {} before", this->name(), name);
  return algorithm;
}

std::optional<Plan> Library::make_plan(const Gemm& gemm, const GemmMatrices& at,
                                       const Alignments& alignments) {
  Problem problem(gemm);
  problem.point_to(at);
  const bool measured = matmul_options().choice == AlgorithmChoice::measured && !context().is_dry();
  const std::string name = measured ? text_of(gemm, alignments) : "";
  if (measured) {
    if (const auto known = known_choice(problem, name)) return Plan{std::move(problem), *known};
  }
  constexpr int kCandidates = 8;
  const auto candidates =
      suggestions(handle_.get(), problem, alignments, measured ? kCandidates : 1);
  if (candidates.empty()) return std::nullopt;
  const Algorithm chosen =
      candidates.size() == 1 ? candidates[0] : fastest(problem, candidates, gemm, at);
  if (measured) choices_[name] = digits_of(chosen);
  return Plan{std::move(problem), chosen};
}

// ---- Measurement

/// Memory that trials write to. It is freed before the first step ends, so it is not charged to the
/// rank's allocator. Null if there is no memory left.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    data_ = nullptr;
    cudaGetLastError();
  }
  ~Scratch() { cudaFree(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// The candidate with the best sustained rate. Trials write to scratch memory only.
Algorithm Library::fastest(const Problem& problem, const std::vector<Algorithm>& candidates,
                           const Gemm& gemm, const GemmMatrices& at) {
  const std::int64_t rows = gemm.M * gemm.batch;
  const auto stride = static_cast<std::size_t>(gemm.c_stride ? gemm.c_stride : gemm.N);
  const Scratch scratch(static_cast<std::size_t>(rows) * stride * size_of(gemm.out));
  if (!scratch.data()) return candidates[0];
  const std::size_t best =
      cuda::fastest(native(current_stream()), candidates.size(), [&](std::size_t i) {
        check_library(launch(problem, candidates[i], at, scratch.data(), gemm.accumulate),
                      "cublasLtMatmul");
      });
  return candidates[best];
}

}  // namespace

int& held_multiprocessors() {
  return context().state<HeldMultiprocessors>().count;
}

MeasuredAlgorithms measured_algorithms() {
  return context().state<Library>().measured();
}

bool use_measured_algorithms(const MeasuredAlgorithms& algorithms) {
  return context().state<Library>().use(algorithms);
}

bool try_gemm(const Gemm& gemm, const GemmMatrices& at) {
  return context().state<Library>().run(gemm, at);
}

void gemm(const Gemm& g, const GemmMatrices& at) {
  if (try_gemm(g, at)) return;
  fail(
      "matmul: cuBLASLt has no algorithm for {} [{}, {}] = op({} [{}, {}]) op([{}, {}]), batch {}, "
      "row strides {}, {}, {}",
      name_of(g.out), g.M, g.N, name_of(g.in), g.M, g.K, g.K, g.N, g.batch, g.a_stride, g.b_stride,
      g.c_stride);
}

}  // namespace tessera::cuda
