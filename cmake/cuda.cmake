# The CUDA backend: TESSERA_CUDA=on compiles it for GPUs with nvcc; TESSERA_CUDA=emulated compiles the
# same sources with the host compiler, against runtime/emulation in place of the toolkit, to run on
# the CPU. A build has one of the two or neither.
#
# Its sources are FOLDER/cuda/*.cpp, FOLDER/*/cuda.cpp (calls to the toolkit's libraries) and *.cu, and
# for GPUs, where cuDNN was found, FOLDER/*/cudnn.cpp.

if(NOT TESSERA_CUDA MATCHES "^(off|on|emulated)$")
  message(FATAL_ERROR "TESSERA_CUDA is ${TESSERA_CUDA}; it must be off, on or emulated")
endif()

if(TESSERA_CUDA STREQUAL "on")
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "TESSERA_CUDA=on needs the CUDA toolkit, which was not found: put nvcc on "
      "PATH, or leave TESSERA_CUDA=off for the CPU alone or =emulated for CUDA kernels on the CPU")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Machine code for each, and PTX of the oldest: drivers compile it for a GPU that has none. Code for
    # 8.0 also runs on 8.6, and for 10.0 on 10.3.
    set(CMAKE_CUDA_ARCHITECTURES 80 89-real 90a-real 100-real 120-real)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(tessera_toolkit INTERFACE)
  target_link_libraries(tessera_toolkit INTERFACE CUDA::cudart CUDA::cublasLt)
elseif(TESSERA_CUDA STREQUAL "emulated")
  file(GLOB emulation CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/runtime/emulation/device/*.cpp
    ${PROJECT_SOURCE_DIR}/runtime/emulation/toolkit/*.cpp)
  add_library(tessera_toolkit STATIC ${emulation})
  target_include_directories(tessera_toolkit PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/runtime/emulation/toolkit>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  add_library(tessera::emulation ALIAS tessera_toolkit)
  target_compile_definitions(tessera_options INTERFACE TESSERA_EMULATED)
  # The engine that runs the kernels and the products must be fast, since tests wait for it. It is not
  # instrumented: to the thread sanitizer every CUDA thread is a thread. The engine calls the sanitizers
  # itself; the kernels are instrumented, and so is the code that reads a product's operands.
  set(engine_options -O2)
  if(TESSERA_SANITIZE)
    list(APPEND engine_options -fno-sanitize=all)
  endif()
  if(TESSERA_SANITIZE MATCHES "address")
    target_compile_definitions(tessera_toolkit PRIVATE TESSERA_EMULATION_ASAN)
  endif()
  if(TESSERA_SANITIZE MATCHES "thread")
    target_compile_definitions(tessera_toolkit PRIVATE TESSERA_EMULATION_TSAN)
  endif()
  file(GLOB engine CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/emulation/device/*.cpp
    ${PROJECT_SOURCE_DIR}/runtime/emulation/toolkit/ordered_product.cpp)
  set_source_files_properties(${engine} PROPERTIES COMPILE_OPTIONS "${engine_options}")
  target_link_libraries(tessera_toolkit PUBLIC tessera::options Threads::Threads)
endif()

# How device code is compiled for the CPU. Kernels read memory by several types; a thread that needs
# more stack than it has must touch the page below it.
set(TESSERA_EMULATED_CODE -fno-strict-aliasing -Wno-unknown-pragmas -fstack-clash-protection)

# tessera_counted_kernels(NAME SOURCES...): the object library NAME of .cu files with a call before every
# load and store, which counts it (runtime/emulation/counting). A program that links it has these kernels
# in place of the ordinary ones. The calls are the thread sanitizer's, so this cannot be combined with a
# sanitizer: the kernels are compiled without the project's options. Optimized as little as makes
# repeated loads one; structures are copied whole, so that 16 bytes are one access.
function(tessera_counted_kernels name)
  set_source_files_properties(${ARGN} PROPERTIES
    LANGUAGE CXX COMPILE_OPTIONS "${TESSERA_EMULATED_CODE}")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL
    ${ARGN} ${PROJECT_SOURCE_DIR}/runtime/emulation/counting/hooks.cpp)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/runtime/emulation/counting/hooks.cpp PROPERTIES
    COMPILE_OPTIONS "-fno-sanitize=all;-fno-builtin;-O2")
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
    -ffp-contract=off -O1 -fsanitize=thread -fno-tree-sra -fno-ipa-sra -fno-thread-jumps
    $<$<BOOL:${TESSERA_WERROR}>:-Werror> $<$<BOOL:${TESSERA_NATIVE}>:-march=native>)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/emulation/toolkit)
  target_compile_definitions(${name} PRIVATE TESSERA_EMULATED TESSERA_CUDA TESSERA_COUNTED_ACCESSES)
endfunction()

function(tessera_cuda_backend)
  if(TESSERA_CUDA STREQUAL "off")
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES tessera_toolkit)
  target_compile_definitions(tessera_options INTERFACE TESSERA_CUDA)
  foreach(folder ${ARGN})
    set(root ${PROJECT_SOURCE_DIR}/${folder})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS
      ${root}/cuda/*.cpp ${root}/*/cuda.cpp ${root}/*.cu)
    target_sources(tessera_${folder} PRIVATE ${sources})
    target_link_libraries(tessera_${folder} PUBLIC tessera_toolkit)
    if(TESSERA_CUDA STREQUAL "emulated" OR CMAKE_CUDA_ARCHITECTURES MATCHES "90a")
      # There is code for Hopper's own instructions. gpu::has_hopper says so.
      set_source_files_properties(${root}/cuda/device_attributes.cpp PROPERTIES
        COMPILE_DEFINITIONS TESSERA_SM90A SKIP_PRECOMPILE_HEADERS ON)
    endif()
    list(FILTER sources INCLUDE REGEX "\\.cu$")
    if(TESSERA_CUDA STREQUAL "emulated")
      set_source_files_properties(${sources} PROPERTIES
        LANGUAGE CXX COMPILE_OPTIONS "${TESSERA_EMULATED_CODE}" SKIP_PRECOMPILE_HEADERS ON)
    elseif(cudnn_state STREQUAL "found")
      file(GLOB sources CONFIGURE_DEPENDS ${root}/*/cudnn.cpp)
      target_sources(tessera_${folder} PRIVATE ${sources})
      target_include_directories(tessera_${folder} SYSTEM PRIVATE
        ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR})
      target_link_libraries(tessera_${folder} PRIVATE ${CUDNN_LIBRARY} CUDA::nvrtc)
      target_compile_definitions(tessera_options INTERFACE TESSERA_CUDNN)
    endif()
  endforeach()
endfunction()
