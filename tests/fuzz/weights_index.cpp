// Fuzz target: the model.safetensors.index.json of a folder with two small files.
#include "models/llama/weights.h"
#include "models/weight_files.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

void write_weights() {
  const Tensor weight = Tensor::from(std::vector<float>{1.0f, 2.0f}, {2});
  write_safetensors(folder() / "a.safetensors", {{"model.norm.weight", weight}});
  write_safetensors(folder() / "b.safetensors",
                    {{"model.layers.0.input_layernorm.weight", weight}});
}

}  // namespace

bool accepts(std::string_view input) {
  enter_context();
  static const bool written = (write_weights(), true);
  require(written, "the files are there");
  write_file("model.safetensors.index.json", input);
  return reads([&] {
    const WeightFiles files(folder().path(), llama_tensor_names());
    files.layers();
    files.find("model.norm.weight");
  });
}

}  // namespace tessera::fuzz
