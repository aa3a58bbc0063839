// The message of an error that a test expects.
#pragma once

#include <string>

#include "runtime/check.h"

namespace tessera::test {

/// The message of the Error that `body` raises, or "no error".
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera::test
