# Images of the program `tessera`, for the CPU and for NVIDIA GPUs (Debian 12).
#
#   docker build --target cpu  --tag tessera:cpu  .
#   docker build --target cuda --tag tessera:cuda .
#
#   docker run --rm --cap-add SYS_PTRACE --shm-size 1g --volume "$PWD:/work" tessera:cpu \
#     launch --ranks 4 -- train run.yaml
#   docker run --rm --gpus all --shm-size 1g --volume "$PWD:/work" tessera:cuda \
#     launch --ranks auto -- train run.yaml
#
# SYS_PTRACE lets OpenMPI copy directly between processes; without it set
# OMPI_MCA_btl_vader_single_copy_mechanism=none. The programs run on any x86-64 processor.

# ---- The sources' packages
FROM debian:12-slim AS tools
WORKDIR /tessera
COPY tools/setup.sh tools/setup.sh
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && tools/setup.sh \
 && rm -rf /var/lib/apt/lists/*

# ---- The CPU's program
FROM tools AS cpu-build
COPY . .
RUN cmake --preset release -D TESSERA_TESTS=OFF \
 && cmake --build --preset release --target tessera

# ---- The program for GPUs, with NVIDIA's compiler and NCCL
FROM tools AS cuda-build
ADD https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/cuda-keyring_1.1-1_all.deb /tmp/
RUN dpkg --install /tmp/cuda-keyring_1.1-1_all.deb \
 && apt-get update \
 && apt-get install --yes --no-install-recommends \
      cuda-nvcc-13-0 cuda-cudart-dev-13-0 libcublas-dev-13-0 libnccl-dev \
 && rm -rf /var/lib/apt/lists/* /tmp/cuda-keyring_1.1-1_all.deb
ENV PATH=/usr/local/cuda/bin:$PATH
COPY . .
RUN cmake --preset cuda -D TESSERA_TESTS=OFF \
 && cmake --build --preset cuda --target tessera

# ---- What programs need to run
FROM debian:12-slim AS libraries
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ca-certificates libevent-core-2.1-7 libevent-extra-2.1-7 libfmt9 libopenmpi3 libpcre2-8-0 \
      libutf8proc2 libyaml-cpp0.7 libzstd1 openmpi-bin zlib1g \
 && rm -rf /var/lib/apt/lists/*
# A container's user is often root, and mpirun asks for these two.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /work
ENTRYPOINT ["tessera"]

# ---- docker build --target cpu
FROM libraries AS cpu
COPY --from=cpu-build /tessera/build/bin/tessera /usr/local/bin/tessera

# ---- docker build --target cuda
FROM libraries AS cuda
RUN --mount=type=bind,from=cuda-build,source=/etc/apt,target=/cuda-apt \
    --mount=type=bind,from=cuda-build,source=/usr/share/keyrings,target=/cuda-keys \
    cp /cuda-apt/sources.list.d/cuda* /etc/apt/sources.list.d/ \
 && cp /cuda-keys/cuda-archive-keyring.gpg /usr/share/keyrings/ \
 && apt-get update \
 && apt-get install --yes --no-install-recommends cuda-cudart-13-0 libcublas-13-0 libnccl2 \
 && rm -rf /var/lib/apt/lists/*
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64
COPY --from=cuda-build /tessera/build-cuda/bin/tessera /usr/local/bin/tessera
