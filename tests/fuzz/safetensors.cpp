// Fuzz target: a safetensors file, and every byte of its tensors.
#include "runtime/safetensors.h"

#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

/// The sum of the tensor's bytes: the sanitizer sees a read outside the file.
unsigned sum_of_bytes(const Tensor& tensor) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < tensor.bytes(); ++i)
    sum += std::to_integer<unsigned>(tensor.raw()[i]);
  return sum;
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  write_file("model.safetensors", input);
  return reads([&] {
    const SafetensorsFile file(folder() / "model.safetensors");
    volatile unsigned used = 0;
    for (const auto& [name, info] : file.tensors()) used = used + sum_of_bytes(file.tensor(name));
  });
}

}  // namespace tessera::fuzz
