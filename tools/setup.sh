#!/usr/bin/env bash
# tools/setup.sh [PACKAGE...]: installs the packages that Tessera is built and tested with, and those
# named. It does and prints nothing if all are installed. It is for Debian 12; on other systems it
# prints the list of packages.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache git pkg-config python3
  # Tests and benchmarks load it. Where other variants are installed too, Debian's alternatives prefer this one.
  libopenblas0-pthread
  libfmt-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev
  zlib1g-dev libzstd-dev libevent-dev
  libopenmpi-dev openmpi-bin iproute2 procps
  catch2 libeigen3-dev clang-format-14
  "$@"
)

installed() {
  [[ $(dpkg-query --show --showformat='${Status}' "$1" 2>/dev/null) == "install ok installed" ]]
}

if ! command -v apt-get dpkg-query >/dev/null; then
  echo "setup.sh: not a Debian system; please install the contents of these packages: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: neither root nor sudo; please run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() {
  # Another installation may be running, as on a machine just booted: wait for its lock.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 "$@" >/dev/null
}

echo "setup.sh: installing ${missing[*]}"
apt update
apt install --yes --no-install-recommends "${missing[@]}"
