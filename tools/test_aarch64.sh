#!/usr/bin/env bash
# tools/test_aarch64.sh: cross-builds Tessera for AArch64 on an x86-64 machine and runs it under qemu-user,
# which emulates the CPU instruction by instruction:
#   - the tests of kernels that depend on the instruction set: products, linear layers, attention, and
#     equal bits at all levels; the others would take long to build and run
#   - runs of both programs, whose files must agree: text made into tokens, the bytes of a plan, and five
#     steps of gpt2-mini in f32 with every bit of the losses, the norms and the weights
# It installs Debian's cross compiler and qemu-user. Libraries for AArch64 go into build-aarch64/sysroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sysroot=$PWD/build-aarch64/sysroot

# Unpacks AArch64 packages and all that they depend on. Apt keeps lists and a state of its own here, so
# the machine's packages stay as they are.
fill_sysroot() {
  local room=$sysroot.new own links folder file
  own=(-qq -o "Dir::State=$room.apt" -o "Dir::State::status=$room.apt/status" -o "Dir::Cache=$room.apt"
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=
    -o Acquire::Retries=3)
  rm -rf "$room" "$room.apt"
  mkdir -p "$room" "$room.apt"/{lists,archives}/partial
  touch "$room.apt/status"
  apt-get "${own[@]}" update
  apt-get "${own[@]}" install --yes --no-install-recommends --download-only libc6-dev \
    libopenblas0-pthread libfmt-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libpcre2-dev \
    libutf8proc-dev zlib1g-dev libzstd-dev libevent-dev catch2 libeigen3-dev
  for file in "$room.apt"/archives/*.deb; do dpkg-deb --extract "$file" "$room"; done
  # Debian's alternatives would make these links.
  links=$room/usr/lib/aarch64-linux-gnu
  for file in "$links"/openblas-pthread/*.so.*; do
    ln -sfn "openblas-pthread/${file##*/}" "$links/${file##*/}"
  done
  find "$room" -type l -lname '/*' | while read -r file; do # they mean files of the sysroot
    ln -sfn "$sysroot$(readlink "$file")" "$file"
  done
  rm -rf "$room.apt"
  mv "$room" "$sysroot"
}

tools/setup.sh g++-aarch64-linux-gnu qemu-user
[[ -d $sysroot ]] || fill_sysroot
cmake --preset release
cmake --build --preset release --target tessera
cmake --preset aarch64
tests=(test_kernels_{matmul_cpu,linear_cpu,attention,instruction_sets})
cmake --build --preset aarch64 --target tessera "${tests[@]}"

for test in "${tests[@]}"; do
  echo "$test under qemu"
  qemu-aarch64 -L "$sysroot" "build-aarch64/bin/$test"
done

failed=0
same() { # same TITLE FILE: the file or folder is the same in both runs
  if diff --recursive "$work/x86-64/$2" "$work/aarch64/$2" >"$work/difference" 2>&1; then
    echo "same bits: $1"
  else
    echo "DIFFERENT: $1"
    head --lines=5 "$work/difference"
    failed=1
  fi
}

work=build-aarch64/runs
rm -rf "$work"
for machine in x86-64 aarch64; do
  tessera=("$PWD/build/bin/tessera")
  if [[ $machine == aarch64 ]]; then
    tessera=(qemu-aarch64 -L "$sysroot" "$PWD/build-aarch64/bin/tessera")
  fi
  keys=(data.train=data/train.bin data.batch_size=2 data.sequence_length=64 runtime.threads=2
    runtime.device=cpu)
  mkdir -p "$work/$machine"
  echo "$machine: five steps of gpt2-mini"
  (
    cp README.md "$work/$machine/text.md"
    cd "$work/$machine"
    "${tessera[@]}" prepare --input text.md --tokenizer chars --out data >prepare.log
    "${tessera[@]}" plan gpt2-mini "${keys[@]}" >plan.txt
    "${tessera[@]}" train gpt2-mini "${keys[@]}" train.dir=run train.steps=5 train.log_every=1 >train.log
    # The shortest decimal number that is read as the same bits.
    grep -o '"step": [0-9]*, "loss": [^,]*\|"gradient_norm": [^,]*' run/metrics.jsonl >bits.txt
  )
done
same "the characters of README.md as tokens" data
same "memory by category, as planned" plan.txt
same "losses and gradients' norms of five steps" bits.txt
same "the weights after five steps" run/model/model.safetensors
[[ $(wc --lines <"$work/aarch64/bits.txt") == 10 ]] || { echo "a run has not logged five steps" && failed=1; }
if [[ $failed == 0 ]]; then
  echo "AArch64 (run under qemu, not on hardware) has the bits of $(uname --machine)"
fi
exit "$failed"
