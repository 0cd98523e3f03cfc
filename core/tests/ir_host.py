"""Kernels compiled for the processor of this host and run in this process, for the tests of lowerings."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from kinfolk.lowering import Target, lower_function

WANTED = ("f16c", "avx", "fma")  # not bf16 instructions: they take denormals for zero


def nothing(w, op):
    """The lowering of markers and of what is trivial on one thread."""
    if op.results:
        w.alias(op.results[0], w.name(op.operands[0]))


def zero(w, op):
    w.alias(op.results[0], "0")


def stack(w, op):
    element, count = w.type(op.attributes["element"]), op.attributes["count"]
    w.define(op.results[0], f"alloca [{count} x {element}], align 16")


LOWERINGS = {
    **dict.fromkeys(("core.thread_id", "core.lane_id", "core.wave_id", "core.block_id"), zero),
    **dict.fromkeys(("core.uniform", "core.first_lane", "core.any_lane", "core.opaque"), nothing),
    **dict.fromkeys(("core.barrier", "core.schedule_fence"), nothing),
    "core.allocate": stack,
}


class Host:
    """Compiles kernels for this process and runs them."""

    def __init__(self):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = self._machine()
        self.target = Target(
            triple=machine.triple,
            data_layout=str(machine.target_data),
            convention="",
            spaces={"global": 0, "workgroup": 0, "view": 0},
            lowerings=LOWERINGS,
        )
        self._narrow = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(_bf16_of_f32)
        llvm.add_symbol("__truncsfbf2", ctypes.cast(self._narrow, ctypes.c_void_p).value)

    def _machine(self):
        known = llvm.get_host_cpu_features()
        features = ",".join(f"+{name}" for name in WANTED if known.get(name))
        return llvm.Target.from_default_triple().create_target_machine(opt=2, features=features)

    def text(self, built):
        writer = lower_function(built, self.target, llvm=22)
        parameters = [f"{writer.type(parameter.type)} %{parameter.name}" for parameter in built.parameters]
        return writer.module(parameters, "nounwind")

    def run(self, built, *arguments):
        """Run a kernel on numpy arrays and numbers."""
        module = llvm.parse_assembly(self.text(built))
        module.verify()
        engine = llvm.create_mcjit_compiler(module, self._machine())
        engine.finalize_object()
        types = [_ctype(parameter) for parameter in built.parameters]
        values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
        ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(built.name))(*values)
        engine.close()


def _bf16_of_f32(value):
    """The helper of compiler-rt that processors without bf16 call; its result is in the low half of the register."""
    bits = int(np.float32(value).astype(ml_dtypes.bfloat16).view(np.uint16))
    return float(np.uint32(bits).view(np.float32))


def _ctype(parameter):
    return {"pointer": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}[
        parameter.kind
    ]
