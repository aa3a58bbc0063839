// Barriers, shuffles and votes of a block's threads.
//
// The last parameter of every function is the calling place in the kernel; callers leave it to its
// default. Threads that wait for each other must be at the same place.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

namespace tessera::emulation {

using Site = std::source_location;

unsigned lane();
/// Returns once the launch ahead has ended (early.h).
void wait_for_launch_ahead(const Site& site);
int synchronize_block(const char* kind, bool predicate, const Site& site);
void synchronize_warp(unsigned mask, const Site& site);
unsigned vote(unsigned mask, bool predicate, const char* kind, const Site& site);
/// The value of lane `source`, which must be in the mask.
std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned source, const char* kind,
                       const Site& site);
/// The lowest lane of the caller's segment of `width` lanes, a power of two.
unsigned first_lane(int width, const char* kind, const Site& site);

template <typename T>
T exchange(unsigned mask, T value, unsigned source, const char* kind, const Site& site) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "not a type that CUDA shuffles");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source, kind, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace tessera::emulation

// ---- Barriers: accesses before are visible to the other threads after ---------------------------

inline void __syncthreads(const std::source_location& site = std::source_location::current()) {
  tessera::emulation::synchronize_block("__syncthreads", false, site);
}
inline int __syncthreads_count(int predicate,
                               const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::synchronize_block("__syncthreads_count", predicate != 0, site);
}
inline int __syncthreads_or(int predicate,
                            const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::synchronize_block("__syncthreads_or", predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate,
                             const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::synchronize_block("__syncthreads_and", predicate == 0, site) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const std::source_location& site = std::source_location::current()) {
  tessera::emulation::synchronize_warp(mask, site);
}

// ---- Shuffles and votes: they order no memory ---------------------------------------------------

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              const std::source_location& site = std::source_location::current()) {
  const unsigned first = tessera::emulation::first_lane(width, "__shfl_sync", site);
  const unsigned lane = first + (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1));
  return tessera::emulation::exchange(mask, value, lane, "__shfl_sync", site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32,
                  const std::source_location& site = std::source_location::current()) {
  const unsigned first = tessera::emulation::first_lane(width, "__shfl_xor_sync", site);
  const unsigned own = tessera::emulation::lane(), other = own ^ static_cast<unsigned>(distance);
  const unsigned lane = other < first + static_cast<unsigned>(width) ? other : own;
  return tessera::emulation::exchange(mask, value, lane, "__shfl_xor_sync", site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   const std::source_location& site = std::source_location::current()) {
  const unsigned first = tessera::emulation::first_lane(width, "__shfl_down_sync", site);
  const unsigned own = tessera::emulation::lane(), other = own + distance;
  const unsigned lane = other < first + static_cast<unsigned>(width) ? other : own;
  return tessera::emulation::exchange(mask, value, lane, "__shfl_down_sync", site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 const std::source_location& site = std::source_location::current()) {
  const unsigned first = tessera::emulation::first_lane(width, "__shfl_up_sync", site);
  const unsigned own = tessera::emulation::lane();
  const unsigned lane = own >= first + distance ? own - distance : own;
  return tessera::emulation::exchange(mask, value, lane, "__shfl_up_sync", site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::vote(mask, predicate != 0, "__ballot_sync", site);
}
inline int __any_sync(unsigned mask, int predicate,
                      const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::vote(mask, predicate != 0, "__any_sync", site) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const std::source_location& site = std::source_location::current()) {
  return tessera::emulation::vote(mask, predicate != 0, "__all_sync", site) == mask;
}
