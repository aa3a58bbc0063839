#include "runtime/step_values.h"

#include <utility>

#include "runtime/category.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::int64_t kSlotAlignment = 16;

}  // namespace

void StepValues::reserve() {
  if (on_device_.defined()) return;
  const CategoryScope category(Category::other);
  on_device_ = Tensor::empty({kBytes}, DType::u8);
  on_host_ = Tensor::empty_on_host({kBytes}, DType::u8);
}

void StepValues::check_same(bool same) {
  check(same,
        "runtime.graph: a kernel's value differs from the value of the step's numbers, so a graph "
        "cannot repeat it; set runtime.graph=false");
}

void StepValues::start_capture() {
  check(on_device_.defined(), "a step is captured before StepValues::reserve()");
  if (std::exchange(capture_, current_capture()) == current_capture()) return;
  used_ = 0;
  writes_.clear();
  streams_.clear();
  before_every_launch([this] { write(); });
}

const std::byte* StepValues::add(std::size_t bytes, Write write) {
  start_capture();
  const std::int64_t at = used_;
  used_ +=
      (static_cast<std::int64_t>(bytes) + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  check(used_ <= kBytes,
        "runtime.graph: the values of a step take more than {} bytes; lower "
        "data.accumulation_steps or set runtime.graph=false",
        kBytes);
  writes_.emplace_back(at, std::move(write));
  return on_device_.raw() + at;
}

void StepValues::remember(const RandomStream& now,
                          std::function<RandomStream(const StepNumbers&)> make) {
  start_capture();
  check_same(make(numbers_).stream() == now.stream());
  streams_.try_emplace(now.stream(), Stream{.make = std::move(make)});
}

const std::uint64_t* StepValues::slot_of(const RandomStream& now) {
  start_capture();
  const auto found = streams_.find(now.stream());
  check(found != streams_.end(),
        "runtime.graph: a kernel draws from a random stream that is not of the step; set "
        "runtime.graph=false");
  Stream& stream = found->second;
  if (stream.slot == nullptr) {
    stream.slot = slot<std::uint64_t>(
        now.stream(),
        [make = stream.make](const StepNumbers& numbers) { return make(numbers).stream(); });
  }
  return stream.slot;
}

void StepValues::write() const {
  std::byte* const to = on_host_.raw();
  for (const auto& [at, write] : writes_) write(to + at, numbers_);
  on_device_.slice(0, used_).copy_from(on_host_.slice(0, used_));
}

}  // namespace tessera
