"""One compiler process: takes jobs on standard input, answers on standard output, and imports llvmlite alone.

Run as a file, by any interpreter that has llvmlite: `python worker.py [LLVM option ...]`. A message is the length of a
JSON header (4 bytes, big endian), the header, and the byte strings whose lengths the header lists under `blobs`.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import json
import os
import re
import struct
import sys
import tempfile
import threading
import time
from typing import Any

LENGTH = struct.Struct(">I")
PARENT_CHECK_SECONDS = 2.0


def read_exactly(stream: Any, count: int) -> bytes:
    """Return `count` bytes; EOFError when the stream ends before."""
    data = bytearray()
    while len(data) < count:
        part = stream.read(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError(f"the stream ended after {len(data)} of {count} bytes")
        data += part
    return bytes(data)


def read_message(stream: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Return the next message's header and blobs; EOFError at the end, ValueError when it is no message."""
    (length,) = LENGTH.unpack(read_exactly(stream, LENGTH.size))
    if length > 1 << 24:
        raise ValueError(f"not a message: its header would have {length} bytes")
    header: dict[str, Any] = json.loads(read_exactly(stream, length))
    if type(header) is not dict:
        raise ValueError(f"not a message: the header is {header!r}")
    return header, [read_exactly(stream, int(size)) for size in header.get("blobs", [])]


def write_message(stream: Any, header: dict[str, Any], blobs: list[bytes]) -> None:
    """Write one message to an unbuffered stream."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}).encode()
    rest = memoryview(b"".join((LENGTH.pack(len(text)), text, *blobs)))
    while rest:
        rest = rest[stream.write(rest) :]


def compile_job(header: dict[str, Any], llvm_ir: str) -> list[bytes]:
    """Return the object, and the assembly when asked for: one code generation each.

    Where the target's LLVM writes text alone (`code`), that is the object.
    """
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(llvm_ir)
    module.verify()
    machine = llvm.Target.from_triple(header["triple"]).create_target_machine(
        cpu=header["cpu"], features=header["features"], opt=header["opt_level"], codemodel="default"
    )
    layout = str(machine.target_data)
    if module.data_layout not in ("", layout):
        raise RuntimeError(f"the data layout of the IR is {module.data_layout}, the target's is {layout}")
    if module.triple not in ("", header["triple"]):
        raise RuntimeError(f"the triple of the IR is {module.triple}, the job's is {header['triple']}")
    module.triple, module.data_layout = header["triple"], layout
    # Code generation rewrites the module: control flow that it has lowered once, it cannot lower again.
    again = module.clone() if header["assembly"] else None
    text_alone = header.get("code") == "assembly"
    blobs = [machine.emit_assembly(module).encode() if text_alone else machine.emit_object(module)]
    if again is not None:
        machine.set_asm_verbosity(True)  # names of blocks, as comments
        blobs.append(machine.emit_assembly(again).encode())
    return blobs


def known_options() -> set[str]:
    """Return the names of LLVM's options, which a child prints: an unknown one is ignored in silence when set."""
    import llvmlite.binding as llvm

    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writable, 1)
        llvm.set_option("", "--help-list-hidden")
        os._exit(1)
    os.close(writable)
    with os.fdopen(readable, encoding="utf-8", errors="replace") as listing:
        names = set(re.findall(r"^ +--?([\w.-]+)", listing.read(), re.MULTILINE))
    os.waitpid(child, 0)
    return names


def option_refusal(option: str) -> str:
    """Set an option and return what LLVM says against it; nothing where it was taken.

    A value that is none of the option's is left out with a message on standard error and no other sign.
    """
    import llvmlite.binding as llvm

    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            llvm.set_option("", option)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        return " ".join(said.read().decode(errors="replace").lstrip(": ").split())


def start_llvm(options: list[str]) -> dict[str, str]:
    """Make the targets known, set process-wide options, and return the versions."""
    import llvmlite
    import llvmlite.binding as llvm

    if tuple(int(part) for part in llvmlite.__version__.split(".")[:2]) < (0, 45):
        llvm.initialize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    version = ".".join(str(part) for part in llvm.llvm_version_info)
    if options:
        known = known_options()
        unknown = [option for option in options if option.lstrip("-").partition("=")[0] not in known]
        if unknown:
            sys.exit(f"LLVM {version} has no option {', '.join(unknown)}")
    for option in options:
        if refusal := option_refusal(option):
            sys.exit(f"LLVM {version} does not take option {option} ({refusal})")
    return {"llvmlite": llvmlite.__version__, "llvm": version}


def end_with_parent(parent: int) -> None:
    """End this process when its parent is gone, also where a forked copy of the parent still holds the pipes."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


def serve(jobs: Any, replies: Any, options: list[str]) -> None:
    """Answer jobs until the stream ends. What LLVM refuses is a reply; what makes LLVM abort ends the process."""
    versions = start_llvm(options)
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    write_message(replies, versions, [])
    while True:
        try:
            header, [llvm_ir] = read_message(jobs)
        except EOFError:
            return
        try:
            blobs = compile_job(header, llvm_ir.decode())
        except Exception as error:  # noqa: BLE001, the parent turns it into a ToolError of this job
            write_message(replies, {"error": str(error).strip() or type(error).__name__}, [])
        else:
            write_message(replies, {}, blobs)


def main() -> None:
    """Keep standard output for replies: what anything else prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies, sys.argv[1:])


if __name__ == "__main__":
    main()
