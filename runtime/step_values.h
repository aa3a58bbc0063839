// Step values: parameters of kernels that change from step to step.
//
// A graph repeats its kernels with the parameters of its capture. A parameter that depends on the step
// is therefore a StepValue. Usually the kernel gets the value itself. In a capture the kernel gets the
// address of a slot in the device's memory instead. Before every launch the host computes all slots
// from the numbers of the step, and one copy brings them to the device:
//
//   host     StepNumbers --make--> | factors | stream | stream | scale | ...    pinned
//   device                         | factors | stream | stream | scale | ...    read by kernels
//
// So every value has one definition, a function of StepNumbers. In a capture it is compared with the
// value that the caller passed.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <type_traits>
#include <vector>

#include "runtime/capture.h"
#include "runtime/context.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace tessera {

/// The numbers of a training step that kernels depend on.
struct StepNumbers {
  /// The step, as in RandomPosition.
  std::uint64_t step = 0;
  /// The optimizer's updates, this one included: t of AdamW.
  std::int64_t update = 1;
  /// By the place of the optimizer.
  std::vector<double> learning_rates = {};
  /// The factor of the loss: the loss scale over the number of valid targets.
  double loss_factor = 1.0;
  double loss_scale = 1.0;
};

template <typename T>
struct StepValue {
  StepValue(const T& value) : value(value) {}
  StepValue(const T& value, const T* slot) : value(value), slot(slot) {}

  T value;
  /// In the device's memory; null: `value` is valid.
  const T* slot = nullptr;
};

/// The slots of a rank: RankContext::state<StepValues>().
class StepValues {
 public:
  /// Bytes of the slots, on the device and again on the host: enough for 65,536 values of up to 16
  /// bytes.
  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;

  /// Allocates the slots, charged to Category::other. Call it before the first capture.
  void reserve();
  /// The numbers of the step that is captured or launched next.
  void set(const StepNumbers& numbers) { numbers_ = numbers; }

  /// In a capture: the slot of a value. Raises Error unless make(numbers) is `now`, or if the slots are
  /// full.
  template <std::equality_comparable T>
  const T* slot(const T& now, const std::function<T(const StepNumbers&)>& make) {
    static_assert(std::is_trivially_copyable_v<T>);
    check_same(make(numbers_) == now);
    return reinterpret_cast<const T*>(
        add(sizeof(T), [make](std::byte* to, const StepNumbers& numbers) {
          const T value = make(numbers);
          std::memcpy(to, &value, sizeof(T));
        }));
  }

  /// In a capture: says how the random stream of a step is made.
  void remember(const RandomStream& now, std::function<RandomStream(const StepNumbers&)> make);
  /// In a capture: the slot of the number of a stream that is remembered. Raises Error for others.
  const std::uint64_t* slot_of(const RandomStream& now);

 private:
  using Write = std::function<void(std::byte* to, const StepNumbers& numbers)>;
  struct Stream {
    std::function<RandomStream(const StepNumbers&)> make;
    const std::uint64_t* slot = nullptr;
  };

  static void check_same(bool same);
  const std::byte* add(std::size_t bytes, Write write);
  void start_capture();
  /// Computes all slots and queues their copy to the device.
  void write() const;

  StepNumbers numbers_;
  Tensor on_device_, on_host_;
  int capture_ = 0;  // the last
  std::int64_t used_ = 0;
  std::vector<std::pair<std::int64_t, Write>> writes_;
  std::map<std::uint64_t, Stream> streams_;  // by their numbers in the captured step
};

/// A parameter of a kernel: `now`, or in a capture the slot of make(numbers).
template <typename T, typename Make>
StepValue<T> step_value(const T& now, const Make& make) {
  if (!is_capturing()) return now;
  return {now, context().state<StepValues>().slot<T>(now, make)};
}

/// The stream that make() gives for the numbers of a step is `now` in this one.
template <typename Make>
const RandomStream& stream_of_step(const RandomStream& now, const Make& make) {
  if (is_capturing()) context().state<StepValues>().remember(now, make);
  return now;
}

}  // namespace tessera
