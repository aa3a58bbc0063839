# tessera_library(NAME [HOST] DEPENDS targets... PRIVATE targets...)
#
# The library tessera_NAME (alias tessera::NAME) of every .cpp below the folder NAME, with the project's
# compile options. It is static unless BUILD_SHARED_LIBS is on. Includes are written from the root:
# "runtime/tensor.h". HOST: the library calls kernels and computes little itself, see tessera_host_code.

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths count from the sources, so a clone in another folder finds the objects of this one. With
  # precompiled headers ccache's manual asks for the two sloppinesses.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

add_library(tessera_options INTERFACE)
add_library(tessera::options ALIAS tessera_options)
target_compile_features(tessera_options INTERFACE cxx_std_20)
target_compile_options(tessera_options INTERFACE
  $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>>
  # Every operation is rounded on its own, so that the bits do not depend on the instruction set.
  $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>>
  # Loops with comparisons and sqrt vectorize only where errno and floating-point traps are not used.
  $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math;-fopenmp-simd>>
  $<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TESSERA_WERROR}>>:-Werror>>
  $<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TESSERA_NATIVE}>>:-march=native>>
  $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-Wall$<COMMA>-Wextra$<COMMA>-Wno-missing-field-initializers>>
  $<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${TESSERA_WERROR}>>:-Werror=all-warnings>>)
if(TESSERA_SANITIZE)
  target_compile_options(tessera_options INTERFACE
    -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # GCC's guesses at sanitized code find <regex> at fault.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()

# Most files take longer to read the standard library than to compile the rest. Each target reads these
# headers once, precompiled, or takes them from another target that has the same options and definitions.
# The level of optimization must be the same, too: GCC 12 crashes otherwise.
# Sources still include all that they use: a build with CMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows it.
set(TESSERA_PRECOMPILED <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <map>
  <memory> <mutex> <numeric> <optional> <span> <string> <string_view> <thread> <utility> <vector> <fmt/format.h>)
set(TESSERA_PRECOMPILED_JSON ${TESSERA_PRECOMPILED} <nlohmann/json.hpp>)

# tessera_precompiled(TARGET HEADERS... | REUSE_FROM OTHER)
function(tessera_precompiled target)
  if(ARGV1 STREQUAL "REUSE_FROM")
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    list(TRANSFORM ARGN REPLACE ".+" "$<$<COMPILE_LANGUAGE:CXX>:\\0>")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
  # Without it a preprocessed file, which ccache compiles, does not name the precompiled header.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${CCACHE}>>:-fpch-preprocess>)
endfunction()

# Sets DEFINED to the names that a source defines at the beginning of a line, and USED to those it takes
# from another namespace.
function(names_in source defined used)
  file(STRINGS ${source} types REGEX "^(struct|class|enum class|enum) [a-zA-Z]")
  list(TRANSFORM types REPLACE "^(struct|class|enum class|enum) ([a-zA-Z0-9_]+).*" "\\2")
  file(STRINGS ${source} names REGEX "^[a-z_A-Z][a-zA-Z0-9_:<>,&* ]* [&*]?[a-zA-Z0-9_]+(\\(| =|\\[| ?{|;)")
  list(FILTER names EXCLUDE REGEX "^(namespace|using namespace|template|return|struct|class|enum|TEST_CASE) ")
  list(TRANSFORM names REPLACE "(\\(| =|\\[| ?{|;).*" "")
  list(TRANSFORM names REPLACE ".*[ &*]" "")
  file(STRINGS ${source} lists REGEX "^constexpr [^=]*=[^=]*, k[a-zA-Z0-9]+ =") # kRows = 4, kTokens = 12
  string(REGEX MATCHALL ", k[a-zA-Z0-9]+ =" more "${lists}")
  list(TRANSFORM more REPLACE "[, =]" "")
  file(STRINGS ${source} using REGEX "^using [a-zA-Z0-9_:]+::[a-zA-Z0-9_]+;")
  list(TRANSFORM using REPLACE ".*::([a-zA-Z0-9_]+).*" "\\1")
  set(${defined} ${types} ${names} ${more} PARENT_SCOPE)
  set(${used} ${using} PARENT_SCOPE)
endfunction()

# tessera_together(TARGET): compiles several sources as one file, up to 120 KB of them. They share the
# templates that they instantiate, which are half of the time. Sources that give one name two meanings are
# not put together.
function(tessera_together target)
  if(NOT TESSERA_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(alone OR NOT EXISTS ${source}) # kept alone, or made by the build
      continue()
    endif()
    file(SIZE ${source} size)
    math(EXPR size "(${size} + 2000) / 4000") # coarse: most edits leave the groups as they are
    names_in(${source} defined used)
    foreach(candidate RANGE 1 100)
      set(group ${candidate})
      set(clash OFF)
      foreach(name ${defined})
        if(name IN_LIST defined_${group} OR name IN_LIST used_${group})
          set(clash ON)
        endif()
      endforeach()
      foreach(name ${used})
        if(name IN_LIST defined_${group})
          set(clash ON)
        endif()
      endforeach()
      math(EXPR whole "0${size_${group}} + ${size}")
      if(NOT clash AND (whole LESS_EQUAL 30 OR whole EQUAL size)) # 120 KB, or a group of one
        break()
      endif()
    endforeach()
    set(size_${group} ${whole})
    list(APPEND defined_${group} ${defined})
    list(APPEND used_${group} ${used})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${target}_${group})
  endforeach()
endfunction()

# Code that spends its time in the kernels that it calls: -O1 compiles in two thirds of -O3's time.
function(tessera_host_code target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  tessera_together(${target})
endfunction()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

function(tessera_library name)
  cmake_parse_arguments(ARG "HOST" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/|/emulation/|/(cuda|cudnn)\\.cpp$") # see cuda.cmake
  add_library(tessera_${name} ${sources})
  add_library(tessera::${name} ALIAS tessera_${name})
  set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(tessera_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tessera>)
  target_link_libraries(tessera_${name} PUBLIC tessera::options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
  if(ARG_HOST)
    tessera_host_code(tessera_${name})
  endif()
  if(name MATCHES "^(runtime|kernels)$") # with and without HOST
    tessera_precompiled(tessera_${name} ${TESSERA_PRECOMPILED})
  elseif(name STREQUAL "models")
    tessera_precompiled(tessera_models ${TESSERA_PRECOMPILED_JSON})
  else()
    tessera_precompiled(tessera_${name} REUSE_FROM tessera_runtime)
  endif()
  set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES tessera_${name})
endfunction()
