// The message of an error.
#pragma once

#include <string>

#include "runtime/error.h"

namespace tessera::test {

/// The message of the Error that `call` raises; "no error" if it raises none.
template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera::test
