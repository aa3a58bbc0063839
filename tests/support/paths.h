// Places that CMake knows, as string literals:
//   TESSERA_SOURCE_DIR  the repository
//   TESSERA_BINARY_DIR  the build, with the programs in bin/
//   TESSERA_MPIRUN      the program mpirun, in builds with MPI
// Files that do not include this header have the same objects in every clone, so the compiler's cache
// serves them.
#pragma once

#include <paths_of_build.h>  // in the build's folder
