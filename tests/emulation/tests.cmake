# The emulator's own tests: the meaning of CUDA's language, and that broken rules are noticed.

add_custom_target(tests_emulation)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.cpp)
if(TESSERA_SANITIZE MATCHES "thread")
  list(FILTER sources EXCLUDE REGEX "/counts_test\\.cpp$") # the calls that count are the sanitizer's
endif()
tessera_tests(emulation ${sources})
if(TARGET test_emulation_counts)
  tessera_counted_kernels(counted_test_kernels ${CMAKE_CURRENT_LIST_DIR}/counted_kernels.cu)
  target_link_libraries(test_emulation_counts PRIVATE counted_test_kernels)
endif()
foreach(target test_emulation test_emulation_hopper test_emulation_cluster test_emulation_early_launch)
  target_link_libraries(${target} PRIVATE tessera::kernels) # tensor maps, and attributes of the device
endforeach()

add_executable(planted ${CMAKE_CURRENT_LIST_DIR}/planted.cpp)
target_link_libraries(planted PRIVATE tessera::emulation)
target_include_directories(planted PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(planted PRIVATE -O1 -g1)
add_dependencies(tests_emulation planted)
set_source_files_properties(${sources} ${CMAKE_CURRENT_LIST_DIR}/planted.cpp
  PROPERTIES COMPILE_OPTIONS "${TESSERA_EMULATED_CODE}" SKIP_PRECOMPILE_HEADERS ON)

# planted(REPORT BUG...): the program with each of these bugs gives a report that REPORT matches.
function(planted report)
  foreach(bug ${ARGN})
    add_test(NAME "emulation/planted:${bug}" COMMAND planted ${bug})
    set_tests_properties("emulation/planted:${bug}" PROPERTIES
      PASS_REGULAR_EXPRESSION "${report}" LABELS emulation TIMEOUT 60)
  endforeach()
endfunction()

add_test(NAME "emulation/planted:none" COMMAND planted none) # and no report
set_tests_properties("emulation/planted:none" PROPERTIES
  FAIL_REGULAR_EXPRESSION "wrong sums" LABELS emulation TIMEOUT 60)
if(TESSERA_SANITIZE MATCHES "address")
  planted("AddressSanitizer: heap-buffer-overflow" global_overrun)
  planted("AddressSanitizer: use-after-poison" declared_overrun carved_overrun last_carved_overrun
    underrun)
  planted("AddressSanitizer: stack-overflow" stack_overflow)
endif()
if(TESSERA_SANITIZE MATCHES "undefined")
  planted("runtime error: .*misaligned address" misaligned_vector misaligned_shared_vector)
  planted("runtime error" local_overrun)
endif()
if(TESSERA_SANITIZE MATCHES "thread")
  planted("ThreadSanitizer: data race" read_before_barrier write_before_barrier
    same_words_by_all_warps no_warp_barrier shuffle_as_barrier same_word_by_all_blocks
    same_word_by_distant_blocks count_without_atomics no_fence_before_count no_fence_after_count vector_stores refill_too_early)
endif()
