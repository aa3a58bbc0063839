// How long the GPU takes for what is queued between two points of a stream.
//
//   const cuda::Moment begin;
//   matmul(c, a, b);
//   const cuda::Moment end;
//   const double ms = end.milliseconds_since(begin);
#pragma once

struct CUevent_st;

namespace tessera::cuda {

/// A point of the stream that is current when it is made; the GPU notes the time as it comes past.
/// The host's own time does not count, unless the GPU had to wait for it.
class Moment {
 public:
  Moment();
  ~Moment();
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  /// Has the GPU come past it?
  bool passed() const;
  /// Waits until the GPU has come past it.
  void synchronize() const;
  /// `earlier` is one of the same GPU. Waits for both.
  double milliseconds_since(const Moment& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace tessera::cuda
