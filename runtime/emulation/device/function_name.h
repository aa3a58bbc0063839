// Names of functions of the running program, for messages.
#pragma once

#include <string>

namespace tessera::emulation {

/// "tessera::cuda::(anonymous namespace)::cast_kernel(...)" from the program's symbol table; the
/// address if the table does not have it.
std::string function_name(const void* function);

}  // namespace tessera::emulation
