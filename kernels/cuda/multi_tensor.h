// One launch over many tensors of different sizes, such as all shards of an optimizer.
//
//   tensors    A, 20000 elements            B, 700    C, 9000
//   blocks    | A 0    A 8192    A 16384 |  B 0    |  C 0    C 8192 |
//
// The list of tensors is a parameter of the launch, passed by value: parameters lie in constant
// memory. So the list needs no copy to the device, and the host does not wait. The list need not
// outlive the launch. A block finds its tensor by bisection.
//
// Parameters have at most 32,764 bytes (CUDA C++ Programming Guide, "__global__ function
// parameters": compute capability 7.0 and CUDA 12.1 or later). Long lists use nearly all of them
// and hold the shards of a whole model: about 360 of AdamW's. Every launch copies the whole list,
// so the tensors of one bucket travel in short lists of 4 KB: about 120 pairs. More tensors take
// several launches.
#pragma once

#include <span>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/numeric.h"

namespace tessera::gpu {

/// Elements of a block: its threads take four elements each, 8 times.
inline constexpr std::int64_t kChunk = 8 * 4 * kThreads;

/// Bytes of a list: for the tensors of a bucket, and for those of a model.
inline constexpr int kShortList = 3900;
inline constexpr int kLongList = 32'000;

/// Tensors of one launch. `Item` describes one tensor (or a few of equal count) to the kernel: its
/// pointers, `count`, and has_quads(), whether Quads can be read from all pointers.
template <typename Item, int kBytes = kShortList>
struct TensorList {
  static constexpr int kCapacity = kBytes / (sizeof(Item) + sizeof(std::int64_t));

  int size = 0;
  std::int64_t chunks = 0;
  /// For each tensor, the number of chunks of the tensors before it.
  std::int64_t first_chunk[kCapacity];
  Item items[kCapacity];
};

/// A block's tensor, and its elements [begin, end) of that tensor.
template <typename Item>
struct Chunk {
  const Item& item;
  std::int64_t begin, end;

  template <int kBytes>
  __device__ static Chunk of_block(const TensorList<Item, kBytes>& list) {
    const std::int64_t chunk = blockIdx.x;
    int low = 0, high = list.size;  // the tensor is in [low, high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (list.first_chunk[middle] <= chunk ? low : high) = middle;
    }
    const Item& item = list.items[low];
    const std::int64_t begin = (chunk - list.first_chunk[low]) * kChunk;
    return {item, begin, begin + kChunk < item.count ? begin + kChunk : item.count};
  }

  /// If the item has_quads(), calls four(i) for elements i to i + 3 as long as four are left; calls
  /// one(i) for the other elements. Every element belongs to one thread. `at_a_time` iterations are
  /// unrolled: in a kernel that stores nothing, as many loads are in flight.
  template <int at_a_time = 1, typename Four, typename One>
  __device__ void for_each(Four four, One one) const {
    const std::int64_t quads_end =
        item.has_quads() ? begin + ((end - begin) & ~std::int64_t{3}) : begin;
#pragma unroll at_a_time
    for (std::int64_t i = begin + 4 * threadIdx.x; i < quads_end; i += 4 * kThreads) four(i);
    for (std::int64_t i = quads_end + threadIdx.x; i < end; i += kThreads) one(i);
  }
};

/// Calls launch(list) for lists of all items with elements.
template <typename Item, int kBytes, typename Launch>
void for_each_list(std::span<const Item> items, Launch launch) {
  using List = TensorList<Item, kBytes>;
  List list{};  // zeros: all of it travels with the launch
  const auto flush = [&] {
    if (list.size > 0) launch(list);
    list.size = 0;
    list.chunks = 0;
  };
  for (const Item& item : items) {
    if (item.count == 0) continue;
    const std::int64_t chunks = ceil_div(item.count, kChunk);
    if (list.size == List::kCapacity || list.chunks + chunks > INT32_MAX) flush();
    list.items[list.size] = item;
    list.first_chunk[list.size++] = list.chunks;
    list.chunks += chunks;
  }
  flush();
}

/// Launches kernel(list, arguments...) for lists of all items with elements, a block per chunk.
template <typename Item, int kBytes = kShortList, typename Kernel, typename... Arguments>
void launch_for_each_list(std::span<const Item> items, Kernel kernel,
                          const Arguments&... arguments) {
  for_each_list<Item, kBytes>(items, [&](const TensorList<Item, kBytes>& list) {
    launch(kernel, dim3(static_cast<unsigned>(list.chunks)), dim3(kThreads), 0, stream(), list,
           arguments...);
  });
}

/// Four neighbouring elements as stored, in one load or store of 16 bytes (f32) or 8 (16 bits).
template <typename T>
struct Four {
  using Raw = std::conditional_t<sizeof(T) == 4, uint4, uint2>;
  T values[4];

  __device__ static Four load(const T* source) {
    const Raw raw = *reinterpret_cast<const Raw*>(source);
    Four four;
    memcpy(static_cast<void*>(four.values), &raw, sizeof raw);
    return four;
  }
  __device__ void store(T* destination) const {
    Raw raw;
    memcpy(&raw, values, sizeof raw);
    *reinterpret_cast<Raw*>(destination) = raw;
  }
};

/// The same as floats.
template <typename T>
struct Quad {
  float values[4];

  __device__ static Quad load(const T* source) {
    const auto stored = Four<T>::load(source);
    Quad result;
#pragma unroll
    for (int i = 0; i < 4; ++i) result.values[i] = gpu::load(stored.values[i]);
    return result;
  }
  __device__ void store(T* destination) const {
    Four<T> stored;
#pragma unroll
    for (int i = 0; i < 4; ++i) gpu::store(stored.values[i], values[i]);
    stored.store(destination);
  }
};

/// Whether Quads can be read from these addresses.
template <typename... T>
__device__ bool are_quads(const T*... address) {
  return ((reinterpret_cast<std::uintptr_t>(address) % (4 * sizeof(T)) == 0) && ...);
}

}  // namespace tessera::gpu
