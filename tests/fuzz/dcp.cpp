// Fuzz target: a folder of torch.distributed.checkpoint, and every tensor in it.
//
// An input is the file .metadata, a line "=== data ===", and the file __0_0.distcp. The seed was saved by
// PyTorch: a tensor [2, 3] in one piece, a number, and a dictionary's value.
#include "tests/fuzz/fuzz.h"
#include "tools/checkpoint/dcp_folder.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  constexpr std::string_view kBetween = "\n=== data ===\n";
  const std::size_t end = std::min(input.find(kBetween), input.size());
  write_file(kDcpMetadataFile, input.substr(0, end));
  write_file("__0_0.distcp", input.substr(std::min(end + kBetween.size(), input.size())));
  return reads([&] {
    const DcpFolder dcp(folder().path());
    for (const auto& [name, tensor] : dcp.tensors()) {
      const auto elements = static_cast<std::size_t>(tensor.shape.numel());
      require(dcp.read(name).size() == elements * size_of(tensor.dtype), "a tensor is whole");
    }
  });
}

}  // namespace tessera::fuzz
