// Fuzz target: the YAML file of a training run.
#include "tests/fuzz/fuzz.h"
#include "tools/config/parse.h"

namespace tessera::fuzz {

bool accepts(std::string_view input) {
  return reads([&] {
    const Config config = parse_config(std::string(input), "run.yaml");
    const std::string written = to_yaml(config);
    std::string again;
    require(reads([&] { again = to_yaml(parse_config(written, "run.yaml")); }),
            "a configuration that is read can be written and read again");
    require(again == written, "reading a configuration that was written changes nothing");
  });
}

}  // namespace tessera::fuzz
