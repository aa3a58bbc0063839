#!/usr/bin/env bash
# tools/site/calculator.sh: compiles `tessera plan` to WebAssembly, build/calculator/calculator.js, for the
# book's calculator (docs/calculator.md).
#
# The first call installs Emscripten and fetches the sources of yaml-cpp, Debian's packages; it takes
# minutes. Later calls compile what has changed and need no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=$PWD/build/calculator
yaml_cpp=$out/yaml-cpp
headers=$out/headers

# Debian's sources of a package, with lists of their own: the machine's list has none, as a rule.
fetch_source() { # fetch_source PACKAGE FOLDER
  local work
  work=$(mktemp -d)
  mkdir -p "$work/parts" "$work/lists/partial"
  sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$work/parts/debian.sources"
  local options=(-qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/parts"
    -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root)
  (cd "$work" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only "$1")
  mkdir -p "$2"
  tar --extract --strip-components=1 --directory="$2" --file="$(ls "$work"/*.orig.tar.*)"
  rm -r "$work"
}

export NODE_PATH=/usr/share/nodejs # where Debian has the packages of Emscripten's scripts
tools/setup.sh emscripten
[[ -d $yaml_cpp ]] || fetch_source yaml-cpp "$yaml_cpp"
mkdir -p "$headers" # those of libraries that are headers alone
ln -sfn /usr/include/fmt /usr/include/nlohmann /usr/include/CLI /usr/include/utf8proc.h "$headers"

if [[ ! -f $out/build.ninja ]]; then
  emcmake cmake -G Ninja -S tools/site/calculator -B "$out" -D CMAKE_BUILD_TYPE=MinSizeRel -D YAML_CPP="$yaml_cpp" \
    -D HEADERS="$headers"
fi
cmake --build "$out"
