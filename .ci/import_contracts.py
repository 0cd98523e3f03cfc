"""Check which part may import which, with import-linter.

The contracts are made from the folders, so a new family or arch needs no entry.
Runs in the environment in which the distributions are installed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THIRD_PARTY_ONLY_RUNTIME = ("llvmlite", "hip", "cupy", "tinygrad", "dask")
# Packages of core that stand under dispatch and the command line, and must be usable without them.
CORE_BASE = ("ir", "expr", "fields", "errors", "parameters")
CORE_TOP = ("dispatch", "plugins", "cli")


def packages(root: Path, pattern: str) -> list[str]:
    """Return the import packages under the `src` folders that `pattern` names."""
    return sorted(path.parent.name for path in root.glob(f"{pattern}/src/*/__init__.py"))


def modules(package: Path) -> set[str]:
    """Return the names of the modules and packages directly in a package."""
    files = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


def forbidden(name: str, sources: Iterable[str], targets: Iterable[str]) -> str:
    """Return one contract as import-linter's text, or nothing where one side is empty. Indirect imports count."""
    sources, targets = sorted(sources), sorted(targets)
    if not sources or not targets:
        return ""
    key = "".join(letter if letter.isalnum() else "_" for letter in name.lower())
    lines = [f"[importlinter:contract:{key}]", f"name = {name}", "type = forbidden", "source_modules ="]
    lines += [f"    {source}" for source in sources]
    lines += ["forbidden_modules =", *(f"    {target}" for target in targets)]
    return "\n".join(lines) + "\n\n"


def configuration(root: Path) -> str:
    """Return the whole of import-linter's configuration for the tree at `root`."""
    core, runtime = packages(root, "core"), packages(root, "runtime")
    families = packages(root, "plugins/*")
    shared = packages(root, "arch/amdgcn")
    archs = [name for name in packages(root, "arch/*") if name not in shared]
    roots = [*core, *runtime, *shared, *archs, *families]
    in_core = modules(root / "core/src/kinfolk")
    base = [f"kinfolk.{name}" for name in CORE_BASE if name in in_core]
    top = [f"kinfolk.{name}" for name in CORE_TOP if name in in_core]
    below_cli = [f"kinfolk.{name}" for name in in_core - {"cli", "__main__"}]
    text = "[importlinter]\nroot_packages =\n" + "".join(f"    {name}\n" for name in roots)
    # A name imported for annotations alone is no dependency: nothing runs through it.
    text += "include_external_packages = True\nexclude_type_checking_imports = True\n\n"
    text += forbidden("Core imports no other part", core, [*runtime, *shared, *archs, *families])
    text += forbidden(
        "Only the runtime reaches toolchains and devices", [*core, *shared, *archs, *families], THIRD_PARTY_ONLY_RUNTIME
    )
    text += forbidden("The runtime imports no arch and no family", runtime, [*shared, *archs, *families])
    text += forbidden("An arch imports no family and not the runtime", [*shared, *archs], [*families, *runtime])
    for arch in archs:
        text += forbidden(f"{arch} imports no other arch", [arch], [other for other in archs if other != arch])
    text += forbidden("What archs share knows none of them", shared, archs)
    for family in families:
        others = [other for other in families if other != family]
        text += forbidden(
            f"{family} imports no arch, no other family, not the runtime",
            [family],
            [*others, *shared, *archs, *runtime],
        )
    text += forbidden("Terminal libraries are the command line's", below_cli, ["rich", "click"])
    text += forbidden("IR and expressions stand below dispatch", base, top)
    return text


def main() -> int:
    text = configuration(ROOT)
    if text.count("type = forbidden") == 0 or not packages(ROOT, "core"):
        print("import contracts: no packages found under the src folders")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contracts.ini"
        path.write_text(text)
        tool = Path(sys.executable).parent / "lint-imports"
        return subprocess.run([tool, path, "--no-cache", "--no-logo"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
