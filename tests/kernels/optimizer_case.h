// The tests that adamw and sgd share.
//
// A test names an optimizer by a type with these members:
//
//   Tensors, Settings                      the operation's own
//   make(count, gradient_dtype, name)      random tensors, a function of the arguments alone
//   update(tensors, settings, scale)       calls the operation on a list
//   slice(tensors, begin, end)             elements [begin, end) of every tensor
//   written(tensors)                       the tensors that an update writes
//   settings()                             the settings to test, all with one gradient_scale
//   without_decay(settings)
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera::test {

template <typename Optimizer>
void update_one(const typename Optimizer::Tensors& tensors,
                const typename Optimizer::Settings& settings, const Tensor& scale = {}) {
  Optimizer::update(std::span(&tensors, 1), settings, scale);
}

template <typename Optimizer>
void require_equal(const typename Optimizer::Tensors& a, const typename Optimizer::Tensors& b) {
  const std::vector<Tensor> of_a = Optimizer::written(a), of_b = Optimizer::written(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same_bits(of_a[i], of_b[i]));
  }
}

/// A range gives the same bits whole or cut into pieces of any size and alignment.
template <typename Optimizer>
void check_pieces() {
  const Rank rank;
  constexpr std::int64_t kCount = 2001;
  for (const auto& settings : Optimizer::settings()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto whole = Optimizer::make(kCount, dtype, "");
      update_one<Optimizer>(whole, settings);
      for (const std::int64_t piece : {5, 16, 31, 1000}) {
        INFO(name_of(dtype) << " in pieces of " << piece);
        const auto cut = Optimizer::make(kCount, dtype, "");
        std::vector<typename Optimizer::Tensors> pieces;
        for (std::int64_t begin = 0; begin < kCount; begin += piece) {
          pieces.push_back(Optimizer::slice(cut, begin, std::min(kCount, begin + piece)));
        }
        Optimizer::update(pieces, settings, {});
        require_equal<Optimizer>(cut, whole);
      }
    }
  }
}

/// Many tensors in one call get the bits of calls of their own, each with its own decay. A guard
/// element at both ends of every tensor stays.
template <typename Optimizer>
void check_many_tensors(DType gradient_dtype) {
  const Rank rank;
  // More tensors than one launch takes, sizes around a block's chunk (8192), empty ones.
  const std::vector<std::int64_t> sizes = {8192, 0, 8193, 1, 24577, 8191, 5, 0, 3};
  constexpr int kTensors = 200;
  const auto settings = Optimizer::settings().front();
  std::vector<typename Optimizer::Tensors> together, separate, inner;
  for (int i = 0; i < kTensors; ++i) {
    const std::int64_t count = i < static_cast<int>(sizes.size()) ? sizes[i] : 1 + i % 7;
    for (auto* list : {&together, &separate}) {
      list->push_back(Optimizer::make(count + 2, gradient_dtype, std::to_string(i)));
      list->back().decay = i % 3 != 0;
    }
    inner.push_back(Optimizer::slice(together.back(), 1, count + 1));
  }
  Optimizer::update(inner, settings, {});
  for (int i = 0; i < kTensors; i += i < 12 || i > 180 ? 1 : 13) {
    INFO("tensor " << i);
    auto& tensors = separate[i];
    const auto own = tensors.decay ? settings : Optimizer::without_decay(settings);
    tensors.decay = true;
    const std::int64_t count = tensors.p.numel();
    update_one<Optimizer>(Optimizer::slice(tensors, 1, count - 1), own);
    require_equal<Optimizer>(together[i], tensors);
  }
}

/// A scale on the device replaces the setting. If it is not finite, nothing changes.
template <typename Optimizer>
void check_scale_on_device() {
  const Rank rank;
  for (const auto& settings : Optimizer::settings()) {
    const auto expected = Optimizer::make(1030, DType::f32, "");
    const auto tensors = Optimizer::make(1030, DType::f32, "");
    auto other = settings;
    other.gradient_scale = 1000.0;
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      update_one<Optimizer>(tensors, other, Tensor::from(std::vector{value}, {1}));
      require_equal<Optimizer>(tensors, expected);
    }
    update_one<Optimizer>(expected, settings);
    const auto scale = static_cast<float>(settings.gradient_scale);
    update_one<Optimizer>(tensors, other, Tensor::from(std::vector{scale}, {1}));
    require_equal<Optimizer>(tensors, expected);
  }
}

/// The device gives the CPU's bits.
template <typename Optimizer>
void check_device_against_cpu() {
  RankContext cpu({.threads = 2});
  for (const auto& settings : Optimizer::settings()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const auto updated = [&] {
        const auto tensors = Optimizer::make(10'007, dtype, "");
        update_one<Optimizer>(tensors, settings);
        std::vector<std::vector<std::uint8_t>> bytes;
        for (const Tensor& tensor : Optimizer::written(tensors)) bytes.push_back(bytes_of(tensor));
        return bytes;
      };
      std::vector<std::vector<std::uint8_t>> expected;
      {
        const ContextGuard guard(cpu);
        expected = updated();
      }
      const Rank rank;
      REQUIRE(updated() == expected);
    }
  }
}

/// The same bits for any number of threads.
template <typename Optimizer>
void check_threads() {
  const Rank owner;
  const auto settings = Optimizer::settings().back();
  const auto expected = Optimizer::make(100'003, DType::f32, "");
  update_one<Optimizer>(expected, settings);
  for (const int threads : {1, 2, 3}) {
    const Rank rank(threads);
    const auto tensors = Optimizer::make(100'003, DType::f32, "");
    update_one<Optimizer>(tensors, settings);
    require_equal<Optimizer>(tensors, expected);
  }
}

}  // namespace tessera::test
