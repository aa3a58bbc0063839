#!/usr/bin/env python3
"""check_ptxas.py BUILD [PATTERN...]: registers, stack and spills of the GPU kernels.

BUILD is the folder of a configured build with TESSERA_CUDA=on; nothing in it is changed. Compiles the
device files whose paths contain a PATTERN (all by default) with ptxas's own report, and prints one
line per kernel and architecture: registers, bytes of stack, spilled bytes, the most threads of a
block, and the blocks for which a multiprocessor has registers.

Exits 1 if
  - there is a warning, or ptxas says that it serializes wgmma;
  - a kernel has no __launch_bounds__: its block may be launched with more threads than there are
    registers for;
  - the registers of a block, or of as many blocks as __launch_bounds__ promises, are more than a
    multiprocessor has;
  - a kernel keeps registers in memory (spills, or a stack), beyond the few words that the kernels of
    MAY_SPILL are allowed.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

# Bytes of stack and spills that a kernel may have. Grouped products by mma.sync are held to 128 registers, so that
# two blocks share a multiprocessor. SGD's momentum lacks one register of 32. Grouped products by multiply-adds lack two
# of 64 on sm_80. The registers of __launch_bounds__ are chosen for sm_80 and sm_90a; elsewhere a compiler's other order
# of instructions may take up to 18 words more.
MAY_SPILL = {"tensor_core_kernel": 32, "sgd_kernel": 18, "14general_kernel.* sm_80": 16, " sm_(89|100|120)$": 72}
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# The PTX file's name has the architecture only where nvcc compiles for several.
TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
# In PTX, the lines between an entry's parameters and its body.
BOUNDS = re.compile(r"\.entry (\w+)\([^)]*\)([^{]*)\{")
THREADS = re.compile(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?")
BLOCKS = re.compile(r"\.minnctapersm (\d+)")

# "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability": 8.0 to 9.0.
REGISTER_FILE = 64 * 1024
WARP_UNIT = 256  # a warp's registers are a multiple


class Kernel(NamedTuple):
    name: str
    architecture: str
    registers: int = 0
    stack: int = 0
    spilled: int = 0
    threads: int = 0  # by __launch_bounds__; 0 without
    least_blocks: int = 1  # of a multiprocessor, by __launch_bounds__

    def block_registers(self):
        warps = (self.threads + 31) // 32
        of_warp = (32 * self.registers + WARP_UNIT - 1) // WARP_UNIT * WARP_UNIT
        return warps * of_warp

    def blocks(self):
        return REGISTER_FILE // self.block_registers() if self.threads else 0



def device_files(build, patterns):
    """(path, command, folder) of every device file that the build compiles and a pattern names."""
    with open(build / "compile_commands.json", encoding="utf-8") as commands:
        for entry in json.load(commands):
            path = entry["file"]
            if path.endswith(".cu") and (not patterns or any(p in path for p in patterns)):
                yield path, shlex.split(entry["command"]), entry["directory"]


def with_report(command, scratch):
    """The command for the device's code alone, into the folder, with ptxas's report and the PTX."""
    command = list(command)
    command[command.index("-o") + 1] = os.path.join(scratch, "kernels.fatbin")
    command[command.index("-c")] = "-fatbin"
    return command + ["-Xptxas", "-v", "--keep", "--keep-dir", scratch]


def compile_one(device_file):
    path, command, folder = device_file
    with tempfile.TemporaryDirectory() as scratch:
        result = subprocess.run(with_report(command, scratch), cwd=folder, capture_output=True,
                                text=True, check=False)
        bounds = {}
        for ptx in Path(scratch).glob("*.ptx"):
            bounds.update(bounds_in(ptx.read_text(encoding="utf-8")))
    report = result.stdout + result.stderr
    return path, result.returncode, report, parse(report, bounds)


def bounds_in(ptx):
    """{(name, architecture): (threads, least blocks)} of the kernels with __launch_bounds__."""
    found = {}
    architecture = TARGET.search(ptx)[1]
    for name, directives in BOUNDS.findall(ptx):
        if match := THREADS.search(directives):
            threads = int(match[1]) * int(match[2] or 1) * int(match[3] or 1)
            blocks = BLOCKS.search(directives)
            found[name, architecture] = (threads, int(blocks[1]) if blocks else 1)
    return found


def parse(report, bounds):
    """The Kernels of ptxas's report."""
    kernels = []
    for line in report.splitlines():
        if match := ENTRY.search(line):
            kernel = Kernel(match[1], match[2])
            if kernel[:2] in bounds:
                threads, blocks = bounds[kernel[:2]]
                kernel = kernel._replace(threads=threads, least_blocks=blocks)
            kernels.append(kernel)
        elif kernels and (match := FRAME.search(line)):
            kernels[-1] = kernels[-1]._replace(stack=int(match[1]),
                                               spilled=int(match[2]) + int(match[3]))
        elif kernels and (match := REGISTERS.search(line)):
            kernels[-1] = kernels[-1]._replace(registers=int(match[1]))
    return kernels


def readable(names):
    """C++ names without the namespaces and parameters."""
    filtered = subprocess.run(
        ["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [re.sub(r"(tessera|cuda|gpu|\(anonymous namespace\))::", "", name) for name in filtered]


def faults(path, status, report, kernels):
    """One line each."""
    found = []
    if status != 0:
        found.append(f"{path}: does not compile:\n{report}")
    found += [f"{path}: {line}" for line in report.splitlines()
              if "warning" in line.lower() or "wgmma.mma_async instructions are serialized" in line]
    for kernel in kernels:
        def add(text, kernel=kernel):
            found.append(f"{path}: {readable([kernel.name])[0]} on {kernel.architecture}: {text}")
        if kernel.threads == 0:
            add("no __launch_bounds__")
        elif kernel.blocks() < kernel.least_blocks:
            add(f"{kernel.least_blocks} blocks take "
                f"{kernel.least_blocks * kernel.block_registers()} registers of {REGISTER_FILE}")
        where = f"{kernel.name} {kernel.architecture}"
        allowed = max((bytes for pattern, bytes in MAY_SPILL.items() if re.search(pattern, where)),
                      default=0)
        if kernel.stack + kernel.spilled > allowed:
            add(f"{kernel.stack} bytes of stack, {kernel.spilled} spilled")
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
    print("registers  stack  spilled  threads  blocks  architecture  kernel")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, report, kernels in pool.map(compile_one, files):
            print(path)
            for kernel, name in zip(kernels, readable([k.name for k in kernels])):
                print(f"{kernel.registers:9}  {kernel.stack:5}  {kernel.spilled:7}  "
                      f"{kernel.threads:7}  {kernel.blocks():6}  {kernel.architecture:12}  {name}")
            found += faults(path, status, report, kernels)
    for fault in found:
        print("FAULT", fault)
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    sys.exit(main(sys.argv[1:]))
