# `cmake --install build` puts the program, the libraries and their headers in place, with a package
# for find_package(tessera): targets tessera::runtime, tessera::kernels and so on.
#
# Headers keep their folders below include/tessera, so users write #include "runtime/tensor.h" too.

include(CMakePackageConfigHelpers)

set(folders runtime kernels autograd sharding optim models tools)
get_property(libraries GLOBAL PROPERTY TESSERA_LIBRARIES)
if(TARGET tessera_tools)
  set_target_properties(tessera_tools PROPERTIES EXPORT_NAME tools)
  list(APPEND libraries tessera_tools)
endif()
set_target_properties(tessera_options PROPERTIES EXPORT_NAME options)

install(TARGETS tessera_options ${libraries} EXPORT tessera-targets)
if(TARGET tessera)
  if(SKBUILD) # pip builds a wheel: the program goes to the environment's PATH
    set(CMAKE_INSTALL_BINDIR ${SKBUILD_SCRIPTS_DIR})
  endif()
  install(TARGETS tessera COMPONENT program)
  if(NOT CMAKE_CROSSCOMPILING) # the program writes the scripts that complete its words in shells
    set(bash bash-completion/completions/tessera)
    set(zsh zsh/site-functions/_tessera)
    set(fish fish/vendor_completions.d/tessera.fish)
    foreach(shell bash zsh fish)
      get_filename_component(script_folder ${CMAKE_INSTALL_DATADIR}/${${shell}} DIRECTORY)
      install(DIRECTORY DESTINATION ${script_folder})
      install(CODE "execute_process(COMMAND $<TARGET_FILE:tessera> completion ${shell}
        OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${${shell}}\"
        COMMAND_ERROR_IS_FATAL ANY)")
    endforeach()
  endif()
endif()
foreach(folder ${folders})
  if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera
      FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tessera-config.cmake.in
  ${CMAKE_BINARY_DIR}/tessera-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change any interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tessera-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_BINARY_DIR}/tessera-config.cmake
  ${CMAKE_BINARY_DIR}/tessera-config-version.cmake
  DESTINATION ${package_dir})
