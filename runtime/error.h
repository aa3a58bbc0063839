// The one exception type of Tessera.
//
// The message is one line: the mistake, its place, and the remedy. Programs print it and exit with
// 1. Host code raises it through `check` and `fail` in runtime/check.h. This header is free of fmt,
// so device code may include it.
#pragma once

#include <stdexcept>

namespace tessera {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tessera
