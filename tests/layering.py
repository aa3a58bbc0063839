#!/usr/bin/env python3
"""layering.py ROOT: checks the direction of every #include in the source tree at ROOT.

  - A folder includes itself and the folders below it, never one above.
  - Models include nothing of sharding/ but the header of shards.
  - Includes in quotes are written from the root and name a file that exists.
  - Device files (.cu, .cuh) do not reach fmt, Eigen or yaml-cpp, directly or through headers:
    nvcc 13 rejects Debian's versions of these.

Prints one line per violation, file:line first, and exits 1 if there is any.
"""

import os
import re
import sys
from pathlib import Path

FOLDERS = ["runtime", "kernels", "autograd", "sharding", "optim", "models", "tools"]
BELOW = {
    "runtime": set(),
    "kernels": {"runtime"},
    "autograd": {"kernels", "runtime"},
    "sharding": {"autograd", "kernels", "runtime"},
    "optim": {"kernels", "runtime"},
    "models": {"sharding", "autograd", "kernels", "runtime"},
    "tools": {"models", "optim", "sharding", "autograd", "kernels", "runtime"},
}
# Models know units (autograd/unit.h), not how their parameters are sharded. Loading files needs shards.
MODELS_MAY_SEE = {"sharding/shard.h"}
TESTS_ALSO_USE = {"models": {"optim"}, "sharding": {"optim"}}  # some train
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
DEVICE_SOURCES = {".cu", ".cuh"}
NOT_FOR_DEVICES = re.compile(r"(fmt|Eigen|yaml-cpp)/")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def includes(path):
    """(line number, name, in quotes?) of every #include in a file."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1] or match[2], match[1] is not None


def sources(root):
    """Paths below the root, relative to it, of all sources of the folders, tests and examples."""
    for top in FOLDERS + ["tests", "examples"]:
        for directory, _, names in os.walk(root / top):
            for name in sorted(names):
                if Path(name).suffix in SOURCES:
                    yield (Path(directory) / name).relative_to(root)


def allowed(path):
    """Folders that this file may include. Tests of a folder see what the folder sees, and tests."""
    top = path.parts[0]
    if top in BELOW:
        return BELOW[top] | {top}
    if top == "tests" and path.parts[1] in BELOW:
        tested = path.parts[1]
        return BELOW[tested] | {tested, "tests"} | TESTS_ALSO_USE.get(tested, set())
    about_examples = "examples" in path.parts[:2]
    return {*FOLDERS, "tests"} | ({"examples"} if about_examples else set())


def direction_violations(root, path):
    for number, name, quoted in includes(root / path):
        top = name.split("/")[0]
        place = f"{path}:{number}"
        if top in (*FOLDERS, "tests", "examples") and "/" in name:
            if top not in allowed(path):
                yield f"{place}: {path.parts[0]} must not include {name}"
            elif path.parts[0] == "models" and top == "sharding" and name not in MODELS_MAY_SEE:
                yield f"{place}: models must not include {name}"
            elif not (root / name).is_file():
                yield f"{place}: there is no {name}"
        elif quoted:
            yield f'{place}: write "{name}" from the root of the tree'


def device_violations(root, device_path):
    """Walks all headers that a device file reaches, each with the includes that led to it."""
    pending = [(device_path, [])]
    seen = {device_path}
    while pending:
        path, trail = pending.pop()
        for number, name, _ in includes(root / path):
            steps = trail + [f"{path}:{number}"]
            header = Path(name)
            if NOT_FOR_DEVICES.match(name):
                through = "".join(f" -> {step}" for step in steps[1:])
                yield f"{steps[0]}{through}: device code must not include {name}"
            elif header not in seen and (root / header).is_file():
                seen.add(header)
                pending.append((header, steps))


def violations(root):
    root = Path(root)
    found = []
    for path in sources(root):
        found += direction_violations(root, path)
        if path.suffix in DEVICE_SOURCES:
            found += device_violations(root, path)
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: layering.py ROOT")
    root = Path(sys.argv[1])
    count = sum(1 for _ in sources(root))
    if count == 0:
        sys.exit(f"layering: no sources below {root}")
    found = violations(root)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"layering: {count} files, {len(found)} violations")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
