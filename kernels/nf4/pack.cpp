#include "kernels/nf4/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/nf4/format.h"
#include "runtime/category.h"
#include "runtime/context.h"
#include "runtime/host_pieces.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;

/// 1 / size, and a large number for a size of 0: a block of zeros has the codes of 0.
float inverse(float size) {
  return 1.0f / std::max(size, 1e-38f);
}

/// The number of bounds between neighbouring values that lie below x: the code of the nearest value.
template <std::size_t N>
std::uint8_t code_of(float x, const std::array<float, N>& values) {
  std::size_t below = 0, length = N - 1;
  while (length > 0) {
    const std::size_t half = length / 2, i = below + half;
    const bool higher = x > (values[i] + values[i + 1]) / 2.0f;
    below = higher ? i + 1 : below;
    length = higher ? length - half - 1 : half;
  }
  return static_cast<std::uint8_t>(below);
}

float largest(std::span<const float> values, float mean) {
  float most = 0.0f;
  for (const float value : values) most = std::max(most, std::fabs(value - mean));
  return most;
}

class Packer {
 public:
  Packer(const Shape& shape, const ReadElements& read)
      : read_(read), row_(shape[-1]), rows_(shape[-2]) {}

  /// Writes the packed tensor's bytes from byte `first` on.
  void pack(std::span<std::uint8_t> bytes, std::int64_t first);

 private:
  /// Calls f(values, i) for rows i in [begin, end), counted over all matrices.
  template <typename F>
  void for_each_row(std::int64_t begin, std::int64_t end, const F& f) const;
  /// Computes the scales of a matrix, their mean, ranges and codes.
  void measure(std::int64_t matrix);
  /// Packs row `row` of the measured matrix.
  void pack_row(std::uint8_t* bytes, const float* values, std::int64_t row) const;

  const ReadElements& read_;
  Nf4Row row_;
  std::int64_t rows_;
  std::int64_t measured_ = -1;
  std::vector<float> scales_, ranges_;
  std::vector<std::uint8_t> codes_;
  float mean_ = 0.0f;
};

template <typename F>
void Packer::for_each_row(std::int64_t begin, std::int64_t end, const F& f) const {
  const CategoryScope category(Category::workspace);
  const std::int64_t most = std::max<std::int64_t>(1, kPiece / row_.columns);
  const Tensor memory =
      Tensor::empty_on_host({std::min(most, end - begin) * row_.columns}, DType::f32);
  for (std::int64_t row = begin; row < end; row += most) {
    const std::int64_t count = std::min(most, end - row);
    const Tensor values = memory.slice(0, count * row_.columns);
    read_(values, row * row_.columns);
    parallel_for(count, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) {
        f(values.data<float>() + i * row_.columns, row + i);
      }
    });
  }
}

void Packer::measure(std::int64_t matrix) {
  const std::int64_t blocks = rows_ * row_.blocks, first = matrix * rows_;
  scales_.resize(static_cast<std::size_t>(blocks));
  codes_.resize(scales_.size());
  ranges_.clear();
  for_each_row(first, first + rows_, [&](const float* values, std::int64_t row) {
    for (std::int64_t block = 0; block < row_.blocks; ++block) {
      const std::int64_t begin = block * kNf4Block;
      const auto count = static_cast<std::size_t>(std::min(kNf4Block, row_.columns - begin));
      scales_[static_cast<std::size_t>((row - first) * row_.blocks + block)] =
          largest({values + begin, count}, 0.0f);
    }
  });
  mean_ = static_cast<float>(std::accumulate(scales_.begin(), scales_.end(), 0.0) /
                             static_cast<double>(blocks));
  for (std::size_t begin = 0; begin < scales_.size(); begin += kNf4Group) {
    const std::size_t count = std::min<std::size_t>(kNf4Group, scales_.size() - begin);
    ranges_.push_back(largest(std::span(scales_).subspan(begin, count), mean_));
    for (std::size_t i = begin; i < begin + count; ++i) {
      codes_[i] = code_of((scales_[i] - mean_) * inverse(ranges_.back()), kNf4ScaleValues);
    }
  }
  measured_ = matrix;
}

void Packer::pack_row(std::uint8_t* bytes, const float* values, std::int64_t row) const {
  std::memset(bytes, 0, static_cast<std::size_t>(row_.bytes));
  const std::int64_t first = row * row_.blocks;
  for (std::int64_t i = 0; i < row_.columns; ++i) {
    const float scale = scales_[static_cast<std::size_t>(first + i / kNf4Block)];
    const int code = code_of(values[i] * inverse(scale), kNf4Values);
    bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] | code << (i % 2 == 0 ? 4 : 0));
  }
  std::memcpy(bytes + row_.scales, codes_.data() + first, static_cast<std::size_t>(row_.blocks));
  std::memcpy(bytes + row_.mean, &mean_, sizeof mean_);
  const std::int64_t groups = row_.group_of(row, row_.blocks - 1) + 1;
  std::memcpy(bytes + row_.ranges, ranges_.data() + first / kNf4Group,
              static_cast<std::size_t>(groups) * sizeof(float));
}

void Packer::pack(std::span<std::uint8_t> bytes, std::int64_t first) {
  const std::int64_t end = first + std::ssize(bytes);
  for (std::int64_t at = first; at < end;) {
    const std::int64_t row = at / row_.bytes, matrix = row / rows_;
    const std::int64_t last = std::min(ceil_div(end, row_.bytes), (matrix + 1) * rows_);
    if (measured_ != matrix) measure(matrix);
    for_each_row(row, last, [&](const float* values, std::int64_t i) {
      std::vector<std::uint8_t> packed(static_cast<std::size_t>(row_.bytes));
      pack_row(packed.data(), values, i - matrix * rows_);
      const std::int64_t begin = i * row_.bytes;
      const std::int64_t from = std::max(begin, first), to = std::min(begin + row_.bytes, end);
      std::copy(packed.data() + (from - begin), packed.data() + (to - begin),
                bytes.data() + (from - first));
    });
    at = last * row_.bytes;
  }
}

}  // namespace

void nf4_pack(const Tensor& part, const Elements& bytes, const Shape& shape,
              const ReadElements& read) {
  if (context().is_dry()) return;
  Packer packer(shape, read);
  write_from_host(part, [&](const Tensor& piece, std::int64_t begin) {
    const auto pack = [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
      packer.pack({piece.data<std::uint8_t>() + offset, static_cast<std::size_t>(count)}, first);
    };
    bytes.from(begin).for_each_run(piece.numel(), pack);
  });
}

}  // namespace tessera
