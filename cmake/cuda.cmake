# The CUDA backend: TESSERA_CUDA=on compiles it for GPUs with nvcc; TESSERA_CUDA=emulated compiles the
# same sources with the host compiler, against kernels/emulation in place of the toolkit, to run on
# the CPU. A build has one of the two or neither.
#
# Its sources are FOLDER/cuda/*.cpp, FOLDER/*/cuda.cpp (calls to the toolkit's libraries) and *.cu.

if(NOT TESSERA_CUDA MATCHES "^(off|on|emulated)$")
  message(FATAL_ERROR "TESSERA_CUDA is ${TESSERA_CUDA}; it must be off, on or emulated")
endif()

if(TESSERA_CUDA STREQUAL "on")
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "TESSERA_CUDA=on needs the CUDA toolkit, which was not found: put nvcc on "
      "PATH, or leave TESSERA_CUDA=off for the CPU alone or =emulated for CUDA kernels on the CPU")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90a)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(tessera_toolkit INTERFACE)
  target_link_libraries(tessera_toolkit INTERFACE CUDA::cudart CUDA::cublasLt)
elseif(TESSERA_CUDA STREQUAL "emulated")
  file(GLOB emulation CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/emulation/*.cpp)
  add_library(tessera_toolkit STATIC ${emulation})
  target_include_directories(tessera_toolkit PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/kernels/emulation/toolkit>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_definitions(tessera_toolkit PUBLIC TESSERA_EMULATED)
  target_link_libraries(tessera_toolkit PUBLIC tessera::options Threads::Threads PRIVATE BLAS::BLAS)
endif()

function(tessera_cuda_backend)
  if(TESSERA_CUDA STREQUAL "off")
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES tessera_toolkit)
  foreach(folder ${ARGN})
    set(root ${PROJECT_SOURCE_DIR}/${folder})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS
      ${root}/cuda/*.cpp ${root}/*/cuda.cpp ${root}/*.cu)
    target_sources(tessera_${folder} PRIVATE ${sources})
    target_link_libraries(tessera_${folder} PUBLIC tessera_toolkit)
    target_compile_definitions(tessera_${folder} PUBLIC TESSERA_CUDA)
    list(FILTER sources INCLUDE REGEX "\\.cu$")
    if(TESSERA_CUDA STREQUAL "emulated")
      set_source_files_properties(${sources} PROPERTIES
        LANGUAGE CXX COMPILE_OPTIONS "-fno-strict-aliasing;-Wno-unknown-pragmas")
    endif()
  endforeach()
endfunction()
