# What backends are built on. None of it is required, and no language beyond C++ is enabled here: this
# only looks, and says once what it found. Without MPI, ranks are threads of one process only.

include(FindPackageMessage)

find_package(CUDAToolkit QUIET)
find_program(MPI_CXX_COMPILER NAMES mpicxx mpic++)
set(MPI_CXX_SKIP_MPICXX ON) # the C interface is what is used
if(MPI_CXX_COMPILER) # without it, FindMPI tells at every configuration what it tried
  find_package(MPI QUIET COMPONENTS CXX)
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
# cuDNN's attention needs its C++ frontend, which is headers alone (PyPI: nvidia-cudnn-frontend).
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(MPI_CXX_COMPILER NCCL_INCLUDE_DIR NCCL_LIBRARY CUDNN_INCLUDE_DIR
  CUDNN_FRONTEND_INCLUDE_DIR CUDNN_LIBRARY)

set(cuda_state "not found")
set(mpi_state "not found")
set(nccl_state "not found")
set(cudnn_state "not found")
if(CUDAToolkit_FOUND)
  set(cuda_state ${CUDAToolkit_VERSION})
endif()
if(MPI_CXX_FOUND)
  set(TESSERA_MPI_LIBRARIES MPI::MPI_CXX)
  set(mpi_state ${MPI_CXX_VERSION})
endif()
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  set(TESSERA_NCCL_LIBRARIES ${NCCL_LIBRARY})
  set(nccl_state "found")
endif()
if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
  set(cudnn_state "without its frontend")
  if(CUDNN_FRONTEND_INCLUDE_DIR)
    set(cudnn_state "found")
  endif()
endif()

set(backends "MPI ${mpi_state}, CUDA ${cuda_state}, NCCL ${nccl_state}, cuDNN ${cudnn_state}")
find_package_message(tessera_backends "Optional backends: ${backends}" "${backends}")
