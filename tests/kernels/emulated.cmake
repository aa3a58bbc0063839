# Some tests of kernels again, on other emulated GPUs than the default one, an exact sm_90.

# Kernels with counted accesses. (bench_counts has all of them.)
if(TARGET test_kernels_emulated_traffic)
  set(kernels ${PROJECT_SOURCE_DIR}/kernels)
  file(GLOB counted CONFIGURE_DEPENDS ${kernels}/attention/cuda/hopper/*.cu
    ${kernels}/grouped_matmul/hopper/*.cu)
  foreach(name query_statistics decoding combine_splits)
    list(APPEND counted ${kernels}/attention/cuda/${name}.cu)
  endforeach()
  list(APPEND counted ${kernels}/cuda/column_sums.cu ${kernels}/cuda/radix_sort.cu)
  foreach(name adamw add bias cast cross_entropy dispatch dropout embedding gelu layer_norm qk_norm rms_norm
      rope router scale swiglu tree_reduce)
    list(APPEND counted ${kernels}/${name}/cuda.cu)
  endforeach()
  tessera_counted_kernels(counted_kernels ${counted})
  target_link_libraries(test_kernels_emulated_traffic PRIVATE counted_kernels)
endif()

# again(OPTION PROGRAM TESTS): the tests of PROGRAM_test.cpp that match TESTS, with the OPTION. With -# Catch
# tags each test with its file.
function(again option program tests)
  set(name "kernels/emulated_gpu:${program} again with ${option}")
  string(REPLACE "," "[#${program}_test]," matching "${tests}[#${program}_test]")
  add_test(NAME ${name} COMMAND test_kernels "-#" ${matching} "~[cpu]" ${option} --warn NoTests)
  set_tests_properties(${name} PROPERTIES LABELS kernels:device TIMEOUT 300
    ENVIRONMENT TESSERA_TEST_DEVICE=cuda)
endfunction()

# Attention and grouped products have kernels of their own for sm_90. sm_89 has 99 KiB of shared memory,
# so attention's backward pass takes a smaller tile there.
again(--architecture=80 attention_16bit "*")
again(--architecture=80 attention_rotary "*")
again(--architecture=80 attention_row_sums "*")
again(--architecture=80 attention_first_key "*documents*,*schedule*,*reject*,*NaN*")
again(--architecture=89 attention_16bit "*errs*")
again(--architecture=80 grouped_matmul "*")

# sm_90 has clusters. On sm_89 one block reads the rest of a long row again.
again(--architecture=89 cuda_shared_rows "*float64*")

# sm_90 sums squares in f64, sm_89 in integers.
again(--architecture=89 gradient_norm "~*wrong arguments*")

# A GPU's exp, log and 1/x are wrong by a few units in the last place. These kernels call them.
foreach(program attention attention_16bit cross_entropy cuda_shared_rows linear_cross_entropy
    vocabulary_cross_entropy gelu swiglu)
  again(--arithmetic=approximate ${program} "~*schedule*")
endforeach()
