# Each micro-kernel of the CPU's matrix products is a file that is compiled for one instruction set. The
# program chooses among them at run time. Most time of a run on the CPU is spent here, so every build
# optimizes these files.

if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64") # a level has the instructions of those before it
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
  set(avx512_bf16 ${avx512} -mavx512bf16)
  set(amx ${avx512_bf16} -mamx-tile -mamx-bf16)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC would load all factors of a depth at once, and then lack registers for the sums.
  set(neon -fno-schedule-insns)
endif()

foreach(level portable avx2 avx512 avx512_bf16 amx neon software_tiles)
  set_source_files_properties(kernels/matmul/cpu/${level}.cpp PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-O3;-Wno-psabi;${${level}}") # no vector is passed from file to file
endforeach()

if(TESSERA_STATIC)
  set_source_files_properties(kernels/matmul/openblas_library.cpp PROPERTIES COMPILE_DEFINITIONS TESSERA_STATIC
    SKIP_PRECOMPILE_HEADERS ON)
endif()
