# PCRE2 and utf8proc, which read the text of tokenizers: TESSERA_TEXT_LIBRARIES. zlib and libzstd, which unpack
# the inputs of `tessera prepare`: TESSERA_PACKING_LIBRARIES. libevent, the HTTP of `tessera serve`:
# TESSERA_HTTP_LIBRARIES.

find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
find_library(UTF8PROC_LIBRARY utf8proc)
find_path(ZLIB_INCLUDE_DIR zlib.h)
find_library(ZLIB_LIBRARY z)
find_path(ZSTD_INCLUDE_DIR zstd.h)
find_library(ZSTD_LIBRARY zstd)
find_path(EVENT_INCLUDE_DIR event2/http.h)
find_library(EVENT_LIBRARY event_extra)
find_library(EVENT_CORE_LIBRARY event_core)
foreach(name PCRE2 UTF8PROC ZLIB ZSTD EVENT)
  if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${name} not found: install libpcre2-dev, libutf8proc-dev, zlib1g-dev, libzstd-dev "
      "and libevent-dev (tools/setup.sh does)")
  endif()
endforeach()
set(TESSERA_TEXT_LIBRARIES ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
set(TESSERA_PACKING_LIBRARIES ${ZLIB_LIBRARY} ${ZSTD_LIBRARY})
set(TESSERA_HTTP_LIBRARIES ${EVENT_LIBRARY} ${EVENT_CORE_LIBRARY})
