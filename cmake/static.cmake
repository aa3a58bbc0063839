# TESSERA_STATIC: programs without shared libraries, which run on any Linux of their processor. The
# packages' targets name shared libraries; here they get archives.

add_link_options(-static)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a) # for text_libraries.cmake, too

function(use_archive target archive)
  set_target_properties(${target} PROPERTIES
    IMPORTED_CONFIGURATIONS ARCHIVE IMPORTED_LOCATION_ARCHIVE ${archive})
endfunction()

find_library(YAML_CPP_ARCHIVE yaml-cpp REQUIRED)
use_archive(yaml-cpp ${YAML_CPP_ARCHIVE})
find_library(FMT_ARCHIVE fmt)
if(FMT_ARCHIVE)
  use_archive(fmt::fmt ${FMT_ARCHIVE})
else() # Debian has none
  add_library(tessera_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  add_dependencies(fmt::fmt tessera_fmt)
  use_archive(fmt::fmt ${CMAKE_CURRENT_BINARY_DIR}/libtessera_fmt.a)
endif()
