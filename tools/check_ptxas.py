#!/usr/bin/env python3
"""check_ptxas.py BUILD [PATTERN...]: registers, stack and spills of the GPU kernels.

BUILD is the folder of a configured build with TESSERA_CUDA=on; nothing in it is changed. Compiles the
device files whose paths contain a PATTERN (all by default) with ptxas's own report, and prints one
line per kernel and architecture: registers, bytes of stack and spilled bytes.

Exits 1 if there is a warning, or if a kernel keeps registers in memory (spills, or a stack) in one
of the folders below: their kernels are shaped so that they need not.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDERS = "adamw|attention|cross_entropy|gradient_norm|layer_norm|rms_norm|tree_reduce"
MUST_NOT_SPILL = re.compile(f"kernels/({FOLDERS})/")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def device_files(build, patterns):
    """(path, command, folder) of every device file that the build compiles and a pattern names."""
    with open(build / "compile_commands.json", encoding="utf-8") as commands:
        for entry in json.load(commands):
            path = entry["file"]
            if path.endswith(".cu") and (not patterns or any(p in path for p in patterns)):
                yield path, shlex.split(entry["command"]), entry["directory"]


def with_report(command, output):
    """The command for the device's code alone, into another file, with ptxas's report."""
    command = list(command)
    command[command.index("-o") + 1] = output
    command[command.index("-c")] = "-fatbin"
    return command + ["-Xptxas", "-v"]


def compile_one(device_file):
    path, command, folder = device_file
    with tempfile.TemporaryDirectory() as scratch:
        command = with_report(command, os.path.join(scratch, "kernels.fatbin"))
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return path, result.returncode, result.stdout + result.stderr


def parse(report):
    """(name, architecture, registers, stack, spilled) of every kernel in ptxas's report."""
    kernels = []
    for line in report.splitlines():
        if match := ENTRY.search(line):
            kernels.append([match[1], match[2], 0, 0, 0])
        elif kernels and (match := FRAME.search(line)):
            kernels[-1][3:] = [int(match[1]), int(match[2]) + int(match[3])]
        elif kernels and (match := REGISTERS.search(line)):
            kernels[-1][2] = int(match[1])
    return kernels


def readable(names):
    """C++ names without the namespaces and parameters."""
    filtered = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [re.sub(r"(tessera|cuda|gpu|\(anonymous namespace\))::", "", name) for name in filtered]


def faults(path, status, report):
    """Warnings, spills and stacks, one line each."""
    found = []
    if status != 0:
        found.append(f"{path}: does not compile:\n{report}")
    found += [f"{path}: {line}" for line in report.splitlines() if "warning" in line.lower()]
    if MUST_NOT_SPILL.search(path):
        for name, architecture, _, stack, spilled in parse(report):
            if stack + spilled > 0:
                name = readable([name])[0]
                found.append(f"{path}: {name} has {stack} bytes of stack and spills {spilled} on "
                             f"{architecture}")
    return found


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    build = Path(arguments[0])
    if not (build / "compile_commands.json").exists():
        print(f"check_ptxas.py: {build} is not configured: cmake --preset cuda", file=sys.stderr)
        return 2
    files = list(device_files(build, arguments[1:]))
    if not files:
        print(f"check_ptxas.py: {build} compiles no such device file", file=sys.stderr)
        return 2
    found = []
    print("registers  stack  spilled  architecture  kernel")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, report in pool.map(compile_one, files):
            print(path)
            kernels = parse(report)
            for kernel, name in zip(kernels, readable([k[0] for k in kernels])):
                _, architecture, registers, stack, spilled = kernel
                print(f"{registers:9}  {stack:5}  {spilled:7}  {architecture:12}  {name}")
            found += faults(path, status, report)
    for fault in found:
        print("FAULT", fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
