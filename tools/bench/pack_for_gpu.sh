#!/usr/bin/env bash
# pack_for_gpu.sh BUILD PACK: packs a build's programs and their libraries, for a machine that has a GPU
# and an NVIDIA toolkit, but none of the project's other dependencies.
#
# A build for any x86-64 processor and one kind of GPU, small enough to carry:
#
#   cmake -B build-gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DTESSERA_CUDA=on \
#     -DCMAKE_CUDA_ARCHITECTURES=90a
#   cmake --build build-gpu && tools/bench/pack_for_gpu.sh build-gpu tessera-gpu.tar.xz
#
# There: unpack it (tar xJf), set LD_LIBRARY_PATH to its folder lib and to the toolkit's libraries, and
# run tools/bench/on_gpu.sh FOLDER RESULTS.
set -euo pipefail

if (($# != 2)); then
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/lib"

mapfile -t programs < <(find "$build/bin" -type f -executable)
cp "${programs[@]}" "$folder/bin"
find "$build" -maxdepth 1 -name 'libtessera_*.so' -exec cp {} "$folder/lib" \;

# own_libraries FILE...: the libraries that they need, and those that these need. The C and C++ libraries, the
# toolkit's, the driver's and MPI are the other machine's own.
theirs='^(ld-linux|libc|libstdc\+\+|libgcc_s|libm|libdl|librt|libpthread|libcuda|libcudart|libcublas|libcudnn|libnvrtc|libnccl|libmpi)[-.a-zA-Z0-9]*\.so'
own_libraries() {
  local name path
  for name in $(objdump -p "$@" | awk '$1 == "NEEDED" {print $2}' | sort -u); do
    [[ $name =~ $theirs || $name == libtessera_* ]] && continue
    path=$(ldconfig -p | awk -v name="$name" '$1 == name && !found++ {print $NF}')
    echo "$path"
    own_libraries "$path"
  done
}
own_libraries "$folder"/bin/* "$folder"/lib/* | sort -u | xargs -I{} cp -L {} "$folder/lib"
strip "$folder"/bin/* "$folder"/lib/*
tar -C "$folder" -cJf "$2" bin lib
du -h "$2"
