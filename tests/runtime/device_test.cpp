#include "runtime/device.h"

#include <catch2/catch.hpp>

namespace tessera {

TEST_CASE("a device's name leads back to the device") {
  for (const Device& device :
       {Device{}, Device{DeviceType::cuda, 0}, Device{DeviceType::cuda, 12}}) {
    REQUIRE(parse_device(to_string(device)) == device);
  }
  REQUIRE(to_string(Device{}) == "cpu");
  REQUIRE(to_string(Device{DeviceType::cuda, 3}) == "cuda:3");
  REQUIRE(parse_device("cuda") == Device{DeviceType::cuda, 0});
  REQUIRE(parse_device("auto").has_value());
}

TEST_CASE("other texts give no device") {
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda:x",
                           "cuda: 1", "cuda:99999999999", "cuda1", "Cuda"}) {
    CAPTURE(text);
    REQUIRE_FALSE(parse_device(text).has_value());
  }
}

}  // namespace tessera
