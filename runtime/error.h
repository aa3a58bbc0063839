// The one exception type of Tessera.
//
// Its message is one line for a person: what was wrong, where, and what to do about it. Programs
// print it and exit with 1. Host code raises it through `check` and `fail` in runtime/check.h;
// this header stays free of formatting so that device code may include it.
#pragma once

#include <stdexcept>

namespace tessera {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tessera
