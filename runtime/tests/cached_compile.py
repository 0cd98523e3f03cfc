"""Compile decode kernels of MLA through the cache, and print what came from where. Run as a process of its own.

python cached_compile.py COUNT [--edit FILE OLD NEW] [--kill-compiler] [--kernels] [--list]
"""

import hashlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from kinfolk.errors import KinfolkError, ToolError
from kinfolk.ir.text import print_kernel
from kinfolk.plugins.composition import compose
from kinfolk_runtime.compilation import compile_specs
from kinfolk_runtime.spec_space import spec_space
from kinfolk_runtime.storage import storage_root
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain


def sha(text):
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()


class Toolchain(LlvmliteToolchain):
    """Counts what it compiles; at first the compiler is killed at its work, if that is asked for."""

    def __init__(self, kill):
        super().__init__(workers=1)
        self.kill, self.compiled = kill, 0

    def compile(self, job):
        self.compiled += 1
        if self.kill:
            [pid] = self.pool().pids
            threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()
        return super().compile(job)


def main(count, *options):
    options = list(options)
    logged = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logging.getLogger("kinfolk_runtime").addHandler(handler)
    composition = compose("mla", "gfx942")
    emitted, emit = [], composition.emit
    composition.emit = lambda spec: emitted.append(spec) or emit(spec)
    if "--edit" in options:
        path, old, new = options[options.index("--edit") + 1 :][:3]
        text = Path(path).read_text()
        assert old in text
        Path(path).write_text(text.replace(old, new))
    toolchain = Toolchain("--kill-compiler" in options)
    specs = [spec for spec in spec_space(composition, "llvm22") if "mla_decode" in spec.symbol()][: int(count)]
    answer = {"error": ""}
    try:
        if toolchain.kill:
            try:
                compile_specs(specs, "llvm22", composition=composition, toolchain=toolchain)
                sys.exit("the compiler lived")
            except ToolError as error:
                answer["error"] = str(error)
                answer["kept"] = [str(path) for path in storage_root().glob("objects/*/*")]
                toolchain.kill = False
        kernels = compile_specs(specs, "llvm22", composition=composition, toolchain=toolchain)
        answer |= {"compiled": toolchain.compiled, "emitted": len(emitted)}
        answer["objects"] = [sha(kernel.object) for kernel in kernels]
        answer["llvm"] = [sha(kernel.llvm_ir) for kernel in kernels]
        if "--kernels" in options:
            answer["ir"] = [sha(print_kernel(kernel.kernel)) for kernel in kernels]
            answer["emitted"] = len(emitted)
    except KinfolkError as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    if "--list" in options:
        from kinfolk_runtime.cache import stores

        answer["entries"] = [(entry.kind, entry.state) for store in stores() for entry in store.entries()]
    print(json.dumps({**answer, "logged": logged}))
    toolchain.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
