"""LLVM for tests: llvmlite in a process of its own, which what an arch lacks may end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from kinfolk.arch import LoweredModule
from kinfolk_amdgcn.target import TRIPLE

_WORKER: Final = """
import json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
for line in sys.stdin:
    job = json.loads(line)
    try:
        target = llvm.Target.from_triple(job["triple"])
        machine = target.create_target_machine(cpu=job["cpu"], features=job["features"], opt=3)
        if job["want"] == "layout":
            answer = str(machine.target_data)
        else:
            module = llvm.parse_assembly(job["text"])
            module.verify()
            if job["want"] == "folded":
                builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
                passes = llvm.create_new_module_pass_manager()
                passes.add_instruction_combine_pass()
                passes.run(module, builder)
                answer = str(module)
            elif job["want"] == "object":
                answer = machine.emit_object(module).hex()
            else:
                answer = machine.emit_assembly(module)
        print(json.dumps({"ok": answer}), flush=True)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
"""


class LlvmFailedError(Exception):
    """LLVM refused the module, or died of it."""


class Llvm:
    """LLVM's code generator for one module after another; a module that ends the process ends only that."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, want: str, text: str = "", *, cpu: str, triple: str = TRIPLE, features: str = "") -> str:
        """Return what LLVM makes of LLVM IR text; LlvmFailedError where it refuses or dies.

        `want`: `assembly`; `object`, in hex digits; `folded`, the text after combining instructions; or `layout`, the
        data layout of the processor `cpu`.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = _started()
        job = {"want": want, "text": text, "triple": triple, "cpu": cpu, "features": features}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LlvmFailedError(f"LLVM's process ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise LlvmFailedError(answer["error"])
        return answer["ok"]

    def assembly(self, module: LoweredModule) -> str:
        """Return the assembly of a module."""
        return self.ask("assembly", module.text, triple=module.triple, cpu=module.cpu, features=module.features)

    def object(self, module: LoweredModule) -> bytes:
        """Return the code object of a module."""
        told = self.ask("object", module.text, triple=module.triple, cpu=module.cpu, features=module.features)
        return bytes.fromhex(told)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait(timeout=30)


def _started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture(scope="session")
def llvm() -> Iterator[Llvm]:
    """LLVM, one process for the session. A conftest.py has it by importing it."""
    worker = Llvm()
    yield worker
    worker.close()
