# PCRE2 and utf8proc, which read the text of tokenizers: TESSERA_TEXT_LIBRARIES.

find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
find_library(UTF8PROC_LIBRARY utf8proc)
foreach(name PCRE2 UTF8PROC)
  if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${name} not found: install libpcre2-dev and libutf8proc-dev (tools/setup.sh does)")
  endif()
endforeach()
set(TESSERA_TEXT_LIBRARIES ${PCRE2_LIBRARY} ${UTF8PROC_LIBRARY})
