#pragma once

// CMake gives two folders, as string literals, to the test programs that include this file:
//   TESSERA_SOURCE_DIR  the repository
//   TESSERA_BINARY_DIR  the build, with the programs in bin/
#if !defined(TESSERA_SOURCE_DIR) || !defined(TESSERA_BINARY_DIR)
#error "tests/CMakeLists.txt found no include of tests/support/paths.h in this program"
#endif
