"""Compile the kernels of `kernels.py` for AMD archs; run by the Python of an environment that has Triton.

    python build.py FOLDER      write NAME-ARCH.hsaco files and objects.json there

Nothing but Triton is needed: no GPU, no driver, no torch.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # the same bytes wherever the checkout is

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SCHEMA = "kinfolk.triton-objects/1"
FLOAT8 = {"gfx942": "fp8e4b8", "gfx950": "fp8e4nv"}
WAVE = 64
PRODUCT = {"m": "i32", "n": "i32", "k": "i32"}
ATTENTION = {
    **dict.fromkeys(("q", "k", "v", "out"), "*bf16"),
    "scale": "fp32",
    "rows": "i32",
    "keys": "i32",
}


def product(element):
    return {"a": f"*{element}", "b": f"*{element}", "c": "*fp32", **PRODUCT}


def cases(arch):
    """Return by name: kernel, types of its arguments, constants, waves of a workgroup."""
    tile = {"tile_m": 32, "tile_n": 32, "tile_k": 32}
    attention = {"tile_m": 64, "tile_n": 32}
    return {
        "add": ("add", {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}, {"block": 256}, 4),
        "softmax": ("softmax", {"x": "*fp32", "out": "*fp32", "stride": "i32", "width": "i32"}, {"block": 512}, 4),
        "layer_norm": (
            "layer_norm",
            {
                "x": "*bf16",
                "weight": "*fp32",
                "bias": "*fp32",
                "out": "*bf16",
                "stride": "i32",
                "width": "i32",
                "epsilon": "fp32",
            },
            {"block": 256},
            2,
        ),
        "matmul": ("matmul", product("bf16"), tile, 4),
        "matmul_tall": ("matmul", product("bf16"), {**tile, "tile_m": 64}, 4),
        "matmul_fp8": ("matmul", product(FLOAT8[arch]), {**tile, "tile_k": 64}, 4),
        "split_k": ("split_k", product("bf16"), {**tile, "parts": 2}, 4),
        "attention_64": ("attention", ATTENTION, {**attention, "width": 64, "causal": True}, 4),
        "attention_128": ("attention", ATTENTION, {**attention, "width": 128, "causal": False}, 4),
    }


def compiled(arch, kernel, types, constants, waves):
    """Return what Triton makes of one kernel; pointers are multiples of 16 bytes, which it counts on for callers."""
    function = getattr(kernels, kernel)
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    attributes = {
        (number,): [["tt.divisibility", 16]]
        for number, name in enumerate(function.arg_names)
        if signature[name].startswith("*")
    }
    source = ASTSource(function, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": waves, "num_stages": 2, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("hip", arch, WAVE), options=options)


def main(folder):
    rows = {}
    for arch in FLOAT8:
        for name, (kernel, types, constants, waves) in cases(arch).items():
            made = compiled(arch, kernel, types, constants, waves)
            data = made.asm["hsaco"]
            (folder / f"{name}-{arch}.hsaco").write_bytes(data)
            rows[f"{name}-{arch}"] = {
                "kernel": kernel,
                "arguments": types,
                "constants": constants,
                "block": waves * WAVE,
                "dynamic_bytes": made.metadata.shared,
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    document = {"schema": SCHEMA, "triton": triton.__version__, "objects": rows}
    (folder / "objects.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
