// libFuzzer's entry into a target.
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* bytes, std::size_t size) {
  tessera::fuzz::accepts({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
