"""Compiled functions of ops: made by the host's LLVM once, kept in the process, and on disk by content.

Each function is an object of its own, so that whatever kernel or process was first, none compiles it again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, Final, cast

from kinfolk_runtime.cache.store import SIMULATOR
from kinfolk_runtime.simulator.fast.text import NAME, OpText

ENTRY: Final = "run_workgroups"
_FORMAT: Final = 2
"""Counted up when an object's meaning changes without its text."""


class HostCodeError(Exception):  # never leaves the simulator: the kernel runs in the reference engine
    """This host has no LLVM, or one that cannot compile for it."""


class HostLibrary:
    """The functions that this process has, by name; none is ever given back. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, int] = {}
        self._engine: Any = None
        self._machine: Any = None
        self._identity = ""

    def addresses(self, texts: Iterable[OpText], support: Mapping[str, str]) -> dict[str, int]:
        """Return the address of every function; `support` are the helpers that texts may call, by name."""
        wanted = {text.name: text for text in texts}
        with self._lock:
            missing = [wanted[name] for name in sorted(wanted) if name not in self._addresses]
            if missing:
                try:
                    self._load(missing, support)
                except (ImportError, OSError, RuntimeError) as error:
                    raise HostCodeError(str(error)) from error
            return {name: self._addresses[name] for name in wanted}

    def _start(self) -> None:
        llvm = _llvm()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple()
        if target.name == "x86-64":
            features += ",-prefer-256-bit"
        self._machine = target.create_target_machine(
            cpu=cpu, features=features, opt=2, codemodel="jitdefault", jit=True
        )
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, self._machine)
        self._identity = f"{_FORMAT} llvm {llvm.llvm_version_info} {cpu} {features}"

    def _load(self, missing: list[OpText], support: Mapping[str, str]) -> None:
        if self._engine is None:
            self._start()
        engine = cast("Any", self._engine)
        for text in missing:
            engine.add_object_file(_llvm().ObjectFileRef.from_data(self._object(text, support)))
        engine.finalize_object()
        for text in missing:
            self._addresses[text.name] = engine.get_function_address(text.name)

    def _object(self, text: OpText, support: Mapping[str, str]) -> bytes:
        """Return the object of one function, from disk where it is there."""
        source = module_text([text], support)
        digest = hashlib.sha256(f"{self._identity}\n{source}".encode()).hexdigest()
        kept = SIMULATOR.read(digest)
        if kept is not None:
            return kept[0]
        data = self._compiled(source)
        SIMULATOR.write(digest, data)
        return data

    def _compiled(self, source: str) -> bytes:
        llvm = _llvm()
        module = llvm.parse_assembly(source)
        module.verify()
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.slp_vectorization = False
        tuning.loop_vectorization = False
        passes = llvm.create_pass_builder(self._machine, tuning)
        passes.getModulePassManager().run(module, passes)
        return self._machine.emit_object(module)


def _llvm() -> Any:
    """Return llvmlite's binding, which has no types."""
    import llvmlite.binding

    return cast("Any", cast("ModuleType", llvmlite.binding))


LIBRARY: Final = HostLibrary()


def module_text(texts: Iterable[OpText], support: Mapping[str, str]) -> str:
    """Return a module of functions, with the helpers they call and the declarations they need."""
    bodies = [text.text.replace(NAME, f"@{text.name}", 1) for text in texts]
    declarations = {line for text in texts for line in text.declarations}
    helpers: dict[str, str] = {}
    pending = list(bodies)
    while pending:
        body = pending.pop()
        for name, helper in support.items():
            if name not in helpers and f"@{name}(" in body:
                helpers[name] = helper
                pending.append(helper)
    lines: list[str] = []
    for helper in (helpers[name] for name in sorted(helpers)):
        for line in helper.splitlines():
            (declarations.add if line.startswith("declare") else lines.append)(line)
    ending = '!0 = !{!"branch_weights", i32 1, i32 100000}'
    return "\n".join([*sorted(declarations), *lines, *bodies, ending])
