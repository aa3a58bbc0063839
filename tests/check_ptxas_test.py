#!/usr/bin/env python3
"""Sees that check_ptxas.py finds each kind of fault, without a compiler."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import check_ptxas


def report(registers, stack=0, spilled=0, name="_Z1fPf"):
    return (f"ptxas info    : Compiling entry function '{name}' for 'sm_90a'\n"
            f"ptxas info    : Function properties for {name}\n"
            f"    {stack} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 0 barriers, 360 bytes cmem[0]\n")


def ptx(bounds, name):
    return f".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry {name}(\n.param .u64 {name}_param_0\n)\n{bounds}{{\nret;\n}}\n"


def found(text, bounds, name="_Z1fPf", status=0, architecture="sm_90a"):
    text = text.replace("sm_90a", architecture)
    of_ptx = check_ptxas.bounds_in(ptx(bounds, name).replace("sm_90a", architecture))
    kernels = check_ptxas.parse(text, of_ptx)
    assert len(kernels) == 1
    return "\n".join(check_ptxas.faults("kernels/x.cu", status, text, kernels))


BOUNDS = ".maxntid 512, 1, 1\n.minnctapersm 2\n"

assert found(report(64), BOUNDS) == ""
# 65 registers count as 72: the two blocks need 2 * 512 * 72.
assert "2 blocks take 73728 registers of 65536" in found(report(65), BOUNDS)
assert found(report(128), ".maxntid 512, 1, 1\n") == ""
assert "1 blocks take 69632 registers" in found(report(129), ".maxntid 32, 4, 4\n")
assert "no __launch_bounds__" in found(report(8), "")
assert "8 bytes of stack, 4 spilled" in found(report(8, stack=8, spilled=4), BOUNDS)
SGD = "_Z10sgd_kernelPf"  # of MAY_SPILL
assert found(report(32, stack=8, spilled=10, name=SGD), BOUNDS, SGD) == ""
assert "8 bytes of stack, 11 spilled" in found(report(32, stack=8, spilled=11, name=SGD), BOUNDS, SGD)
NORM = "_ZN15backward_kernelI9RowLayoutEE"  # may spill on sm_120 alone
assert "8 bytes of stack, 4 spilled" in found(report(8, stack=8, spilled=4, name=NORM), BOUNDS, NORM)
assert found(report(8, stack=8, spilled=16, name=NORM), BOUNDS, NORM, architecture="sm_120") == ""
assert "warning" in found(report(8) + "ptxas warning : x\n", BOUNDS)
assert "does not compile" in found(report(8), BOUNDS, status=1)
