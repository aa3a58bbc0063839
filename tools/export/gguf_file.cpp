#include "tools/export/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <span>

#include "kernels/cast/op.h"
#include "runtime/check.h"
#include "runtime/file.h"

namespace tessera {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32;
constexpr std::int64_t kBlock = 32;  // elements of a block of q8_0
constexpr std::int64_t kBlockBytes = 2 + kBlock;

/// The numbers of GGUF for types of values.
template <typename T>
constexpr std::uint32_t kValueType = 0;
template <>
constexpr std::uint32_t kValueType<std::uint32_t> = 4;
template <>
constexpr std::uint32_t kValueType<std::int32_t> = 5;
template <>
constexpr std::uint32_t kValueType<float> = 6;
template <>
constexpr std::uint32_t kValueType<bool> = 7;
template <>
constexpr std::uint32_t kValueType<std::string> = 8;
template <typename T>
constexpr std::uint32_t kValueType<std::vector<T>> = 9;

/// The numbers of ggml for types of tensors.
std::uint32_t number_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 8;
    case GgufType::bf16:
      return 30;
  }
  fail("no such GGUF type");
}

std::uint64_t bytes_of(const GgufTensorInfo& info) {
  const std::int64_t n = info.shape.numel();
  switch (info.type) {
    case GgufType::f32:
      return 4 * static_cast<std::uint64_t>(n);
    case GgufType::q8_0:
      return static_cast<std::uint64_t>(n / kBlock * kBlockBytes);
    default:
      return 2 * static_cast<std::uint64_t>(n);
  }
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

template <typename T>
void put(std::string& out, const std::vector<T>& values) {
  put(out, kValueType<T>);
  put(out, static_cast<std::uint64_t>(values.size()));
  for (const T& value : values) put(out, value);
}

std::string header_of(const GgufKeys& keys, const std::vector<GgufTensorInfo>& infos) {
  std::string header = "GGUF";
  put(header, kVersion);
  put(header, static_cast<std::uint64_t>(infos.size()));
  put(header, static_cast<std::uint64_t>(keys.size()));
  for (const auto& [key, value] : keys) {
    put(header, key);
    std::visit(
        [&](const auto& v) {
          put(header, kValueType<std::decay_t<decltype(v)>>);
          put(header, v);
        },
        value);
  }
  std::uint64_t offset = 0;
  for (const GgufTensorInfo& info : infos) {
    const int rank = info.shape.rank();
    check(info.type != GgufType::q8_0 || info.shape[rank - 1] % kBlock == 0,
          "{}: rows of {} elements do not fill blocks of {}", info.name, info.shape[rank - 1],
          kBlock);
    put(header, info.name);
    put(header, static_cast<std::uint32_t>(rank));
    for (int d = rank - 1; d >= 0; --d) put(header, static_cast<std::uint64_t>(info.shape[d]));
    put(header, number_of(info.type));
    put(header, offset);
    offset += aligned(bytes_of(info));
  }
  header.resize(aligned(header.size()));
  return header;
}

/// A block's factor is its largest magnitude / 127; its numbers are the elements divided by that factor,
/// before it is rounded to f16, to nearest with ties away from zero.
std::string in_blocks(std::span<const float> values) {
  std::string blocks;
  blocks.reserve(values.size() / kBlock * kBlockBytes);
  for (std::size_t i = 0; i < values.size(); i += kBlock) {
    const std::span<const float> block = values.subspan(i, kBlock);
    float largest = 0.0f;
    for (const float v : block) largest = std::max(largest, std::abs(v));
    const float factor = largest / 127.0f;
    const float inverse = factor == 0.0f ? 0.0f : 1.0f / factor;
    put(blocks, float16(factor));
    for (const float v : block) put(blocks, static_cast<std::int8_t>(std::round(v * inverse)));
  }
  return blocks;
}

void write_elements(std::ostream& out, const Tensor& values, GgufType type) {
  if (type == GgufType::q8_0) {
    const std::string blocks =
        in_blocks({values.data<float>(), static_cast<std::size_t>(values.numel())});
    out.write(blocks.data(), static_cast<std::streamsize>(blocks.size()));
    return;
  }
  Tensor written = values;
  if (type != GgufType::f32) {
    written = Tensor::empty_on_host(values.shape(), dtype_from_name(enum_name(type)));
    cast(written, values);
  }
  out.write(reinterpret_cast<const char*>(written.raw()),
            static_cast<std::streamsize>(written.bytes()));
}

}  // namespace

void write_gguf(const std::filesystem::path& path, const GgufKeys& keys,
                const std::vector<GgufTensorInfo>& infos,
                const std::function<void(const std::function<void(const Tensor&)>&)>& produce) {
  const std::string header = header_of(keys, infos);
  write_file_atomically(path, [&](std::ostream& out) {
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    std::size_t tensor = 0;
    std::int64_t elements = 0;  // of the tensor, written so far
    produce([&](const Tensor& values) {
      check(tensor < infos.size(), "{}: there are more tensors than announced", path.string());
      const GgufTensorInfo& info = infos[tensor];
      elements += values.numel();
      check(elements <= info.shape.numel(), "{}: {} has more elements than {}", path.string(),
            info.name, info.shape.numel());
      write_elements(out, values, info.type);
      if (elements < info.shape.numel()) return;
      const std::string padding(aligned(bytes_of(info)) - bytes_of(info), '\0');
      out.write(padding.data(), static_cast<std::streamsize>(padding.size()));
      ++tensor;
      elements = 0;
    });
    check(tensor == infos.size(), "{}: {} of {} tensors were written", path.string(), tensor,
          infos.size());
  });
}

}  // namespace tessera
