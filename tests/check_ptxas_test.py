#!/usr/bin/env python3
"""Sees that check_ptxas.py finds each kind of fault, without a compiler."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import check_ptxas


def report(registers, stack=0, spilled=0):
    return ("ptxas info    : Compiling entry function '_Z1fPf' for 'sm_90a'\n"
            "ptxas info    : Function properties for _Z1fPf\n"
            f"    {stack} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 0 barriers, 360 bytes cmem[0]\n")


def ptx(bounds):
    return f".visible .entry _Z1fPf(\n.param .u64 _Z1fPf_param_0\n)\n{bounds}{{\nret;\n}}\n"


def found(text, bounds, path="kernels/attention/cuda/x.cu", status=0):
    kernels = check_ptxas.parse(
        text, {(name, "sm_90a"): b for name, b in check_ptxas.bounds_in(ptx(bounds)).items()})
    assert len(kernels) == 1
    return "\n".join(check_ptxas.faults(path, status, text, kernels))


BOUNDS = ".maxntid 512, 1, 1\n.minnctapersm 2\n"

assert found(report(64), BOUNDS) == ""
# 65 registers count as 72: the two blocks need 2 * 512 * 72.
assert "2 blocks take 73728 registers of 65536" in found(report(65), BOUNDS)
assert found(report(128), ".maxntid 512, 1, 1\n") == ""
assert "1 blocks take 69632 registers" in found(report(129), ".maxntid 32, 4, 4\n")
assert "no __launch_bounds__" in found(report(8), "")
assert "8 bytes of stack, 4 spilled" in found(report(8, stack=8, spilled=4), BOUNDS)
assert found(report(8, stack=8), BOUNDS, path="kernels/gelu/cuda.cu") == ""
assert "warning" in found(report(8) + "ptxas warning : x\n", BOUNDS)
assert "does not compile" in found(report(8), BOUNDS, status=1)
