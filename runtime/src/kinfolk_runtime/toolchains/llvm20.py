"""LLVM 20 in a Python of its own: an environment that holds nothing but the llvmlite of that generation."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import venv
from pathlib import Path
from typing import Final

from kinfolk.errors import ToolError
from kinfolk_runtime.storage import storage_root
from kinfolk_runtime.toolchains.llvmlite_toolchain import LlvmliteToolchain

NAME: Final = "llvmlite20"
FLAVOR: Final = "llvm20"
REQUIREMENT: Final = "llvmlite>=0.46,<0.47"
REMEDY: Final = "kinfolk doctor --install llvm20"
INSTALL_SECONDS: Final = 600.0


def llvm20_folder() -> Path:
    """Return the folder of the environment, whether it exists or not."""
    return storage_root() / "toolchains" / FLAVOR


def find_llvm20() -> Path | None:
    """Return the interpreter of the installed environment, or None. Nothing is started."""
    python = _interpreter(llvm20_folder())
    return python if python.exists() else None


def install_llvm20() -> Path:
    """Make the environment, or keep one that works, and return its interpreter.

    It is made beside its place and moved there once its LLVM has answered. Raises ToolError where the package cannot
    be had, or what was had is not LLVM 20; what was there before is then still there.
    """
    folder = llvm20_folder()
    found = find_llvm20()
    if found is not None and _works(found):
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{FLAVOR}-", dir=folder.parent) as temporary:
        made = Path(temporary) / "made"
        _make_environment(made)
        _install_into(_interpreter(made))
        if not _works(_interpreter(made)):
            raise ToolError(f"{REQUIREMENT} was installed, but its LLVM is not of flavor {FLAVOR}")
        _put(made, folder, Path(temporary) / "before")
    return _interpreter(folder)


def llvm20_toolchain() -> LlvmliteToolchain:
    """Return the toolchain of the installed environment; ToolError with the remedy where there is none."""
    python = find_llvm20()
    if python is None:
        raise ToolError(f"the llvmlite of LLVM 20 is not installed in {llvm20_folder()}. Run: {REMEDY}")
    return LlvmliteToolchain(str(python), name=NAME)


def _interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _make_environment(folder: Path) -> None:
    try:
        venv.create(folder, symlinks=os.name != "nt", with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolError(
            f"no environment could be made in {folder}: {error}. The running Python needs venv with pip "
            f"(Debian: apt install python3-venv)"
        ) from error


def _put(made: Path, folder: Path, before: Path) -> None:
    """Move a new environment to its place; one that another process put there meanwhile is as good."""
    if folder.exists():
        shutil.move(folder, before)
    try:
        os.rename(made, folder)
    except OSError as error:
        if not _works(_interpreter(folder)):
            raise ToolError(f"{made} could not be moved to {folder}: {error}") from error


def _install_into(python: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"installing {REQUIREMENT} failed: {error}") from error
    if done.returncode:
        raise ToolError(f"installing {REQUIREMENT} failed: {done.stderr.strip()[-2000:]} [{' '.join(command)}]")


def _works(python: Path) -> bool:
    toolchain = LlvmliteToolchain(str(python), workers=1)
    try:
        return FLAVOR in toolchain.flavors
    except ToolError:
        return False
    finally:
        toolchain.close()
