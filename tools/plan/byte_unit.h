// One unit for all bytes of a table.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tessera {

/// MiB, or GiB if the table's largest number is 64 GiB or more.
class ByteUnit {
 public:
  explicit ByteUnit(std::int64_t most) : is_gibi_(most >= std::int64_t{64} << 30) {}

  const char* name() const { return is_gibi_ ? "GiB" : "MiB"; }
  /// With two decimals, without the unit's name.
  std::string text(double bytes) const {
    return fmt::format("{:.2f}", bytes / (is_gibi_ ? 0x1p30 : 0x1p20));
  }
  std::string text(std::int64_t bytes) const { return text(static_cast<double>(bytes)); }

 private:
  bool is_gibi_;
};

}  // namespace tessera
