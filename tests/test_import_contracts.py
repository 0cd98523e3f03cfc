"""The import contracts are made from the folders, and each refuses a planted import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = {
    "core/src/kinfolk": ("dispatch", "ir", "cli"),
    "runtime/src/kinfolk_runtime": ("artifact",),
    "arch/amdgcn/src/kinfolk_amdgcn": ("ops",),
    "arch/one/src/kinfolk_one": ("facts",),
    "arch/two/src/kinfolk_two": ("facts",),
    "plugins/mla/src/kinfolk_mla": ("spec",),
    "plugins/other/src/kinfolk_other": ("spec",),
}
LAWFUL = {
    "plugins/mla/src/kinfolk_mla/spec.py": "import kinfolk.ir\n",
    "arch/one/src/kinfolk_one/facts.py": "import kinfolk.ir, kinfolk_amdgcn.ops\n",
    "runtime/src/kinfolk_runtime/artifact.py": "import kinfolk.dispatch\n",
    "core/src/kinfolk/cli.py": "import kinfolk.dispatch\nimport rich\n",
}
PLANTED = {
    "family-imports-arch": ("plugins/mla/src/kinfolk_mla/spec.py", "import kinfolk_one.facts"),
    "family-imports-shared-arch": ("plugins/mla/src/kinfolk_mla/spec.py", "import kinfolk_amdgcn.ops"),
    "family-imports-family": ("plugins/mla/src/kinfolk_mla/spec.py", "import kinfolk_other.spec"),
    "family-imports-runtime": ("plugins/mla/src/kinfolk_mla/spec.py", "import kinfolk_runtime.artifact"),
    "arch-imports-family": ("arch/one/src/kinfolk_one/facts.py", "import kinfolk_mla.spec"),
    "arch-imports-arch": ("arch/one/src/kinfolk_one/facts.py", "import kinfolk_two.facts"),
    "shared-imports-arch": ("arch/amdgcn/src/kinfolk_amdgcn/ops.py", "import kinfolk_one.facts"),
    "core-imports-family": ("core/src/kinfolk/dispatch.py", "import kinfolk_mla.spec"),
    "core-imports-arch": ("core/src/kinfolk/ir.py", "import kinfolk_one.facts"),
    "core-imports-llvmlite": ("core/src/kinfolk/ir.py", "import llvmlite"),
    "core-imports-rich": ("core/src/kinfolk/dispatch.py", "import rich"),
    "ir-imports-dispatch": ("core/src/kinfolk/ir.py", "import kinfolk.dispatch"),
    "runtime-imports-family": ("runtime/src/kinfolk_runtime/artifact.py", "import kinfolk_mla.spec"),
    "late-import-counts": ("core/src/kinfolk/dispatch.py", "def f():\n    import kinfolk_mla"),
}


def tree(folder: Path) -> Path:
    """Make a small workspace that keeps the contracts."""
    for part, modules in PARTS.items():
        (folder / part).mkdir(parents=True)
        (folder / part / "__init__.py").touch()
        for module in modules:
            name = f"{part}/{module}.py"
            (folder / name).write_text(LAWFUL.get(name, ""))
    return folder


def lint_imports(ci_module, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "contracts.ini").write_text(ci_module("import_contracts").configuration(folder))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / part / "..") for part in PARTS)}
    tool = Path(sys.executable).parent / "lint-imports"
    command = [sys.executable, "-S", "-c", RUN.format(path=sys.path), "contracts.ini", "--no-cache"]
    assert tool.exists()
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


# The planted packages carry our names: they must come before the installed ones, whatever way those are installed.
RUN = """
import os, sys
sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
sys.path += [path for path in {path!r} if path not in sys.path and "/src" not in path]
from importlinter.cli import lint_imports_command
lint_imports_command()
"""


def test_a_tree_that_keeps_the_contracts_passes(ci_module, tmp_path):
    ended = lint_imports(ci_module, tree(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_import_breaks_a_contract(ci_module, tmp_path, planted):
    path, statement = PLANTED[planted]
    file = tree(tmp_path) / path
    file.write_text(file.read_text() + statement + "\n")
    ended = lint_imports(ci_module, tmp_path)
    assert ended.returncode != 0
    assert " 0 broken" not in ended.stdout
    assert "BROKEN" in ended.stdout, ended.stdout + ended.stderr
