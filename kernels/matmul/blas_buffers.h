// Address space for OpenBLAS, checked before the first product.
#pragma once

namespace tessera::cpu {

/// The buffers that a rank's threads need for products at the same time. OpenBLAS maps one of 128
/// MiB per concurrent call and keeps it. If the system refuses the mapping, as under `ulimit -v`,
/// OpenBLAS tries again for ever. So the constructor maps them all and raises Error if one does not
/// fit. Kept with the rank's context (RankContext::state).
class BlasBuffers {
 public:
  BlasBuffers();
  ~BlasBuffers();
  BlasBuffers(const BlasBuffers&) = delete;
  BlasBuffers& operator=(const BlasBuffers&) = delete;

 private:
  int threads_;
};

}  // namespace tessera::cpu
