#!/usr/bin/env python3
"""check_sass.py BUILD: instructions of a tile on Hopper, in attention's forward pass and in products' epilogues.

BUILD is the folder of a build with TESSERA_CUDA=on that has compiled kernels/attention/cuda/hopper/forward.cu and
the products in kernels/grouped_matmul/hopper. Reads the machine code of sm_90a from their objects (cuobjdump -sass).

Attention, next to FlashAttention-3. An innermost loop that multiplies on the
tensor cores and computes exponentials is the body of a tile: a consumer's 64 queries by 128 keys. Prints a line
for each, with the instructions of a thread:

  products       HGMMA, 16 deep
  exponentials   MUFU.EX2
  conversions    F2FP, each of two numbers to 16 bits
  ratio          of their sum to the least that the algorithm takes

The least is that of FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608, algorithms 1 and 2), for each of
the 128 threads of a warpgroup:

  64 x 128 / 128 = 64   weights exp(s - m), an exponential each
  64 x 2 / 128   = 1    correction exp(m - m') for each row. Four threads have a row, and each computes it:
                        a thread has parts of 2 rows, so 2
  64 x 128 / 128 / 2    = 32 conversions of the weights for the second product

Products. An epilogue's innermost loop reads chunks of 16 bytes from shared memory and stores them. Its three warps
share a tile of 128 x 256. Prints a line for each kernel of such tiles: the instructions that a warp executes for a
tile, and the depth from which they are at most half of the clocks of the next tile's products. These take 1,024 clocks
for each 64 depths.

Exits 1 if a body's ratio is above 1.15, if an epilogue needs more depth than 768 (with SwiGLU's gradient 1,152, of
weighed rows 1,792), or if a kernel has no such loop.
"""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from check_ptxas import readable

FORWARD = "kernels/attention/cuda/hopper/forward.cu"
PRODUCTS = [f"kernels/grouped_matmul/hopper/{name}.cu" for name in ("products", "gathered", "activations")]
THREADS, QUERIES, KEYS = 128, 64, 128
EXPONENTIALS = QUERIES * KEYS // THREADS + 2
CONVERSIONS = QUERIES * KEYS // THREADS // 2
MOST = 1.15
EPILOGUE_THREADS, TILE = 96, 128 * 256
# Stores of a chunk, by the kernel's Result: c; gate, up and SwiGLU; two gradients; two, and the weighed row; c and GELU;
# GELU's gradient.
STORES = {"0": 1, "1": 3, "2": 2, "3": 3, "4": 2, "5": 1}
DEPTHS = {"0": 768, "1": 768, "2": 1152, "3": 1792, "4": 768, "5": 768}

FUNCTION = re.compile(r"^\s*Function : (\w+)")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
TARGET = re.compile(r"\b0x([0-9a-f]+)\s*$")


class Instruction(NamedTuple):
    address: int
    guard: str
    opcode: str
    operands: str

    def target(self):
        """The address to which a branch may jump, or None."""
        match = TARGET.search(self.operands) if self.opcode.startswith("BRA") else None
        return int(match[1], 16) if match else None

    def goes_on(self):
        """Whether the next instruction may follow."""
        always = not self.guard and "," not in self.operands  # "BRA P1, 0x40" has a condition without a guard
        return not (always and self.opcode.startswith(("BRA", "EXIT", "RET")))


class Body(NamedTuple):
    """A loop's instructions of each kind."""
    products: int
    exponentials: int
    conversions: int

    def ratio(self):
        return (self.exponentials + self.conversions) / (EXPONENTIALS + CONVERSIONS)


def functions(sass):
    """{name: [Instruction]} of cuobjdump's output."""
    found, current = {}, None
    for line in sass.splitlines():
        if match := FUNCTION.match(line):
            current = found.setdefault(match[1], [])
        elif current is not None and (match := INSTRUCTION.match(line)):
            current.append(Instruction(int(match[1], 16), match[2] or "", match[3], match[4]))
    return found


def successors(instructions):
    """{address: addresses that may follow}. A call comes back to the next one."""
    following = [i.address for i in instructions[1:]] + [None]
    return {i.address: [a for a in (i.target(), after if i.goes_on() else None) if a is not None]
            for i, after in zip(instructions, following)}


def reached(edges, start, without=None):
    """The addresses on the ways from `start` that do not touch `without`."""
    found, left = set(), [start]
    while left:
        address = left.pop()
        if address != without and address not in found:
            found.add(address)
            left += edges.get(address, [])
    return found


def loops(instructions):
    """{header: addresses of the loop}. A step closes a loop if every way to it leads through the header, to which it
    steps. Other jumps back come from code that was moved behind the end, such as the repetition of a wait."""
    if not instructions:
        return {}
    after, before, entry = successors(instructions), {}, instructions[0].address
    for address, nexts in after.items():
        for target in nexts:
            before.setdefault(target, []).append(address)
    found, live = {}, reached(after, entry)
    for header, steps in before.items():
        outside = reached(after, entry, without=header) if len(steps) > 1 or header == entry else live
        for address in live.intersection(steps) - outside:
            found.setdefault(header, {header}).update(reached(before, address, without=header))
    return found


def count(instructions, addresses):
    opcodes = [i.opcode for i in instructions if i.address in addresses]
    return Body(sum(o.startswith("HGMMA") for o in opcodes), sum(o == "MUFU.EX2" for o in opcodes),
                sum(o.startswith("F2FP") for o in opcodes))


def innermost(instructions, suits):
    """The loops whose instructions suit and that have no such loop within, in order."""
    found = {header: addresses for header, addresses in loops(instructions).items() if suits(addresses)}
    return [found[header] for header in sorted(found)
            if not any(other < found[header] for other in found.values())]


def tile_bodies(instructions):
    """The innermost loops with products and exponentials."""
    def suits(addresses):
        body = count(instructions, addresses)
        return body.products and body.exponentials
    return [count(instructions, addresses) for addresses in innermost(instructions, suits)]


def result_of(kernel):
    """The Result of a kernel of wide tiles, or None for other kernels."""
    match = re.search(r"hopper_kernel<.*Direction\)\d, 256, .*Result\)(\d)", kernel)
    return match and match[1]


def chunks_of_tile(kernel):
    """The chunks of a tile that an epilogue's lanes take from shared memory."""
    width = 4 if "Direction)2" in kernel else 8  # weights' gradients are f32 until they are stored
    return TILE // width // (2 if result_of(kernel) == "1" else 1)  # gate and up come together


def epilogue_instructions(instructions, chunks, stores):
    """The instructions that a warp executes for a tile, in the longest of the loops; 0 without one. `stores`: of a
    chunk."""
    def of(addresses, *opcodes):
        return sum(i.opcode.startswith(opcodes) for i in instructions if i.address in addresses)

    def suits(addresses):
        return of(addresses, "LDS.128") and of(addresses, "ST.E", "STG") and not of(addresses, "HGMMA")
    turns = -(-chunks // EPILOGUE_THREADS)
    return max((len(addresses) * turns * stores // of(addresses, "ST.E", "STG")
                for addresses in innermost(instructions, suits)), default=0)


def hiding_depth(instructions):
    return 2 * instructions * 64 // 1024


def epilogue_faults(kernels):
    """One line each, for {name: instructions}."""
    found = [] if kernels else ["the object of the products has no kernel of wide tiles for sm_90a"]
    for name, instructions in kernels.items():
        if not instructions:
            found.append(f"{name}: no loop stores chunks of shared memory")
        elif hiding_depth(instructions) > DEPTHS[result_of(name)]:
            found.append(f"{name}: {instructions} instructions need a depth above {DEPTHS[result_of(name)]}")
    return found


def faults(kernels):
    """One line each, for {name: [Body]}."""
    found = [] if kernels else ["the object has no kernel for sm_90a"]
    for name, bodies in kernels.items():
        if not bodies:
            found.append(f"{name}: no loop has both products and exponentials")
        found += [f"{name}: {body.exponentials} exponentials and {body.conversions} conversions are "
                  f"{body.ratio():.2f} of FlashAttention-3's" for body in bodies if body.ratio() > MOST]
    return found


def object_of(build, source):
    """The object that the build makes of the source, or None."""
    commands = build / "compile_commands.json"
    if not commands.exists():
        return None
    for entry in json.loads(commands.read_text(encoding="utf-8")):
        if entry["file"].endswith(source):
            command = shlex.split(entry["command"])
            return Path(entry["directory"]) / command[command.index("-o") + 1]
    return None


def code_of(path):
    """{readable name: [Instruction]} of the object's kernels."""
    sass = subprocess.run(["cuobjdump", "-sass", "-arch", "sm_90a", path], capture_output=True, text=True,
                          check=True).stdout
    found = functions(sass)
    return dict(zip(readable(list(found)), found.values()))


def check_attention(path):
    kernels = {name: tile_bodies(code) for name, code in code_of(path).items()}
    print(f"FlashAttention-3: {EXPONENTIALS} exponentials, {CONVERSIONS} conversions\n"
          "products  exponentials  conversions  ratio  kernel")
    for name, bodies in kernels.items():
        for body in bodies:
            print(f"{body.products:8}  {body.exponentials:12}  {body.conversions:11}  {body.ratio():5.2f}  {name}")
    return faults(kernels)


def check_products(paths):
    kernels = {name: epilogue_instructions(code, chunks_of_tile(name), STORES[result])
               for path in paths for name, code in code_of(path).items() if (result := result_of(name))}
    print("instructions of a tile's epilogue  hidden from depth  kernel")
    for name, instructions in kernels.items():
        print(f"{instructions:33}  {hiding_depth(instructions):17}  {name}")
    return epilogue_faults(kernels)


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    build = Path(arguments[0])
    for source in (FORWARD, *PRODUCTS):
        path = object_of(build, source)
        if path is None or not path.exists():
            print(f"check_sass.py: {build} has not compiled {source}: cmake --preset cuda, then build",
                  file=sys.stderr)
            return 2
    if shutil.which("cuobjdump") is None:
        print("check_sass.py: cuobjdump, a part of the CUDA toolkit, is not on PATH", file=sys.stderr)
        return 2
    found = check_attention(object_of(build, FORWARD)) + check_products([object_of(build, source) for source in PRODUCTS])
    for fault in found:
        print("FAULT", fault)
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a closed pipe ends it without a line
    sys.exit(main(sys.argv[1:]))
