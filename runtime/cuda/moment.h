// Measures the GPU's time between two points of a stream.
//
//   const cuda::Moment begin;
//   matmul(c, a, b);
//   const cuda::Moment end;
//   const double ms = end.milliseconds_since(begin);
#pragma once

struct CUevent_st;

namespace tessera::cuda {

/// A point of the current stream. The GPU records the time when it reaches the point. The host's own
/// time does not count, unless the GPU had to wait for the host.
class Moment {
 public:
  Moment();
  ~Moment();
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  /// Has the GPU reached it?
  bool passed() const;
  /// Waits until the GPU has reached it.
  void synchronize() const;
  /// `earlier` is a moment of the same GPU. Waits for both.
  double milliseconds_since(const Moment& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace tessera::cuda
