// Hugging Face's form of 8-bit weights has the bits that Transformers gives it.
#include "models/fp8_form.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using nlohmann::json;

Tensor golden(const std::string& name) {
  static const SafetensorsFile file(TESSERA_SOURCE_DIR
                                    "/tests/golden/fp8_form/fp8_form.safetensors");
  return file.tensor(name);
}

/// The number of an e4m3 code, by the OCP specification.
double number_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 128 ? magnitude : -magnitude;
}

}  // namespace

TEST_CASE("fp8 form: numbers and scales have Transformers' bits") {
  const test::Rank rank;
  const Fp8Form form = to_fp8_form(golden("weight"));
  CHECK(test::same_bits(form.numbers, golden("numbers")));
  CHECK(test::same_bits(form.inverse_scales, golden("inverse_scales")));
}

TEST_CASE("fp8 form: a weight is its number times its block's inverse scale") {
  const test::Rank rank;
  const Tensor numbers = golden("numbers"), scales = golden("inverse_scales");
  const Tensor values = from_fp8_form(numbers, scales);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(numbers.raw());
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const std::int64_t row = i / 384, column = i % 384;
    const float scale = scales.data<float>()[row / 128 * 3 + column / 128];
    different += values.data<float>()[i] != static_cast<float>(number_of(codes[i]) * scale);
  }
  CHECK(different == 0);
}

TEST_CASE("fp8 form: tensors that do not fit each other are refused") {
  const Tensor numbers = golden("numbers"), scales = golden("inverse_scales");
  CHECK_THROWS_WITH(from_fp8_form(scales, scales), Contains("expected e4m3"));
  CHECK_THROWS_WITH(from_fp8_form(numbers, scales.reshape({3, 2})),
                    Contains("expected floating ones [2, 3]"));
  CHECK_THROWS_WITH(from_fp8_form(numbers, numbers), Contains("expected floating ones [2, 3]"));
  CHECK_FALSE(suits_fp8_form({256, 192}));
  CHECK_FALSE(suits_fp8_form({2, 128, 128}));
  CHECK_FALSE(suits_fp8_form({0, 128}));
}

TEST_CASE("fp8 form: config.json names it, and no other form of 8 bits is read") {
  const auto refusal = [](const char* key, const json& value) {
    json config = {{"quantization_config", fp8_form_entry({"lm_head"})}};
    check_weights_form(ConfigReader(config));
    config["quantization_config"][key] = value;
    return test::error_of([&] { check_weights_form(ConfigReader(config)); });
  };
  const auto refused = Contains("config.json: quantization_config names weights of the form");
  CHECK_THAT(refusal("quant_method", "gptq"), refused && Contains("gptq"));
  CHECK_THAT(refusal("fmt", "e5m2"), refused);
  CHECK_THAT(refusal("weight_block_size", {1, 128}), refused);
  CHECK_THAT(refusal("weight_block_size", nullptr), refused);
  CHECK_THAT(refusal("activation_scheme", "static"), refused);
  const json other = {{"quantization_config", fp8_form_entry({})}};
  check_weights_form(ConfigReader(other));
}

}  // namespace tessera
