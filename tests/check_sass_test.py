#!/usr/bin/env python3
"""Sees that check_sass.py counts a tile's instructions and finds each kind of fault, without a disassembler."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import check_sass

PRODUCT = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0"
EXPONENTIAL, CONVERSION = "MUFU.EX2 R5, R5", "F2FP.BF16.F32.PACK_AB R4, R5, R4"
OTHER, WAIT = "IADD3 R1, R1, 0x1, RZ", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3], R2"


def sass(*lines):
    """cuobjdump's output. "name:" is a label, which ends a jump's line."""
    places, instructions = {}, []
    for line in lines:
        if line.endswith(":"):
            places[line[:-1]] = 16 * len(instructions)
        else:
            instructions.append(line)
    text = "\t\tFunction : _Z1fv\n\t.headerflags\t@\"EF_CUDA_SM90\"\n"
    for i, line in enumerate(instructions):
        words = line.split()
        if "BRA" in words:
            line = " ".join(words[:-1]) + f" {places[words[-1]]:#x}"
        text += f"        /*{16 * i:04x}*/              {line} ;    /* 0x00000a00ff017b82 */\n"
        text += " " * 60 + "/* 0x000fe20000000800 */\n"
    return text


def bodies(*lines):
    return {name: check_sass.tile_bodies(code) for name, code in check_sass.functions(sass(*lines)).items()}


def body(exponentials, conversions, label="tile", jump="@!P0 BRA"):
    return [f"{label}:", PRODUCT, *[EXPONENTIAL] * exponentials, *[CONVERSION] * conversions, f"{jump} {label}"]


# 64 weights, 2 corrections and 32 conversions for each of 128 threads.
assert (check_sass.EXPONENTIALS, check_sass.CONVERSIONS) == (66, 32)

# A loop is counted. Instructions before and after it are not.
least = bodies(EXPONENTIAL, *body(66, 32), CONVERSION, "EXIT")
assert least == {"_Z1fv": [check_sass.Body(1, 66, 32)]}
assert least["_Z1fv"][0].ratio() == 1.0
assert check_sass.faults(least) == []

# A jump may have its condition among its operands, and a loop may begin with a jump to its condition.
assert bodies(OTHER, *body(66, 32, jump="BRA P1,"), "EXIT") == least
assert bodies("BRA test", *body(66, 32)[:-1], "test:", OTHER, "@P0 BRA tile", "EXIT") == least

# A wait is a loop within the body, or its repetition lies behind the end and jumps back.
assert bodies("tile:", "again:", WAIT, "@!P0 BRA again", OTHER, *body(66, 32)[1:], "EXIT") == least
moved = ["@!P0 BRA again", "full:", *body(66, 32), *[CONVERSION] * 32, "EXIT", "again:", WAIT, "@!P0 BRA again",
         "BRA full"]
assert bodies(WAIT, *moved) == least

# The loop over blocks of rows around two bodies of tiles is no body, and each of them counts alone.
two = bodies("rows:", OTHER, *body(66, 32, "first"), *body(70, 40, "second"), "@P1 BRA rows", "EXIT")
assert two == {"_Z1fv": [check_sass.Body(1, 66, 32), check_sass.Body(1, 70, 40)]}
assert check_sass.faults(two) == []  # 110 / 98 = 1.12

# 1.15 times 98 is 112.7.
assert check_sass.faults(bodies(*body(81, 32))) == ["_Z1fv: 81 exponentials and 32 conversions are 1.15 of "
                                                    "FlashAttention-3's"]
assert check_sass.faults(bodies(*body(80, 32))) == []
assert len(check_sass.faults(bodies(*body(66, 47)))) == 1

assert "no loop has both products and exponentials" in check_sass.faults(bodies(PRODUCT, EXPONENTIAL, "EXIT"))[0]
assert check_sass.faults({}) == ["the object has no kernel for sm_90a"]

# An epilogue: the innermost loop that stores chunks. 96 threads share a tile's chunks.
LOAD, STORE = "LDS.128 R4, [R2]", "ST.E.128 desc[UR4][R6.64], R4"
WIDE, GATED, GRADIENT = ["groups::grouped_hopper_kernel<(groups::Direction)0, 256, (groups::Result)" + result + ", T, T>"
               for result in "012"]
assert check_sass.chunks_of_tile(WIDE) == 128 * 32 and check_sass.chunks_of_tile(GATED) == 128 * 16
assert check_sass.chunks_of_tile(WIDE.replace(")0, 256", ")2, 256")) == 128 * 64
assert check_sass.chunks_of_tile(GRADIENT) == 128 * 32
assert [check_sass.result_of(name) for name in (WIDE, GRADIENT, WIDE.replace("256", "128"))] == ["0", "2", None]


def epilogue(*lines, chunks=128 * 32, stores=1):
    (code,) = check_sass.functions(sass(*lines)).values()
    return check_sass.epilogue_instructions(code, chunks, stores)


rows = ["rows:", LOAD, OTHER, STORE, "@!P0 BRA rows"]
assert epilogue("piece:", OTHER, *rows, "@P1 BRA piece", "EXIT") == 4 * 43  # 4,096 / 96 chunks, rounded up
assert epilogue("rows:", LOAD, STORE, LOAD, STORE, "@!P0 BRA rows", "EXIT") == 5 * 43 // 2
assert epilogue("rows:", LOAD, LOAD, *[STORE] * 3, "@!P0 BRA rows", "EXIT", chunks=2048, stores=3) == 6 * 22
assert epilogue("rows:", PRODUCT, LOAD, STORE, "@!P0 BRA rows", "EXIT") == 0
assert check_sass.epilogue_faults({WIDE: 6144}) == []
assert "6152 instructions need a depth above 768" in check_sass.epilogue_faults({WIDE: 6152})[0]
assert check_sass.epilogue_faults({GRADIENT: 8192}) == []
assert "need a depth above 1152" in check_sass.epilogue_faults({GRADIENT: 9300})[0]
assert "no loop stores" in check_sass.epilogue_faults({WIDE: 0})[0]
assert "no kernel of wide tiles" in check_sass.epilogue_faults({})[0]
