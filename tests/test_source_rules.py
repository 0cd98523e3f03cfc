"""The source rules see a planted violation of each kind, and nothing in its nearest lawful neighbour."""

from pathlib import Path

import pytest

CORE, FAMILY, ARCH = "core/src/kinfolk/x.py", "plugins/mla/src/kinfolk_mla/x.py", "arch/gfx942/src/kinfolk_gfx942/x.py"
SHARED = "arch/amdgcn/src/kinfolk_amdgcn/"


@pytest.fixture(scope="module")
def check(ci_module):
    return ci_module("rules").check


def lines_of_function(count):
    return "def f():\n" + "    pass\n" * (count - 1)


READS = "import os\n"
PLANTED = {
    "arch compared in core": (CORE, 'if arch == "gfx942":\n    pass\n'),
    "arch prefix in a family": (FAMILY, 'name.startswith("gfx9")\n'),
    "arch in what archs share": (SHARED + "x.py", 'PROCESSORS = "gfx942"\n'),
    "arch in a part of what archs share": (SHARED + "lowering/target.py", 'name == "gfx950"\n'),
    "arch in an f-string": (CORE, 'f"gfx{number}"\n'),
    "arch in capitals": (CORE, '"GFX942"\n'),
    "environment read": (CORE, READS + 'os.environ["KINFOLK_FAST"]\n'),
    "environment get": (FAMILY, READS + 'os.environ.get("HOME")\n'),
    "environment getenv": (ARCH, READS + 'os.getenv("HOME")\n'),
    "environment by a variable": (CORE, READS + "def f(name):\n    return os.environ[name]\n"),
    "environment through a constant": (CORE, READS + 'NAME = "HOME"\nos.environ.get(NAME)\n'),
    "environment whole": (CORE, READS + "dict(os.environ)\n"),
    "environment imported": (CORE, "from os import environ\n"),
    "long file": (CORE, "x = 1\n" * 501),
    "long function": (CORE, lines_of_function(81)),
    "long method": (CORE, "class A:\n" + "".join("    " + line + "\n" for line in lines_of_function(81).splitlines())),
    "python of another version": (CORE, "def f[(x):\n"),
    "another distribution in a test of one": ("runtime/tests/test_x.py", 'pytestmark = pytest.mark.needs("mla")\n'),
    "module of nothing": ("core/src/kinfolk/utils.py", ""),
    "machine path": ("docs/a.md", "see /wor" + "k/shared/x\n"),
    "temporary path": (CORE, 'open("/tm' + 'p/cache")\n'),
    "registry host": ("pyproject.toml", 'url = "https://files.python' + 'hosted.org/x"\n'),
    "package index": ("Makefile", "pip install --extra-index" + "-url x\n"),
}
LAWFUL = {
    "arch named by its own distribution": (ARCH, 'NAME = "gfx942"\n'),
    "beginning of a target id where they are taken apart": (SHARED + "target.py", 'compile("gfx[0-9a-f]")\n'),
    "arch inside a longer word": (CORE, '"a configfx"\n'),
    "arch in a test": ("core/tests/test_x.py", '"gfx942"\n'),
    "distributions in a test that crosses them": ("tests/test_x.py", 'pytestmark = pytest.mark.needs("mla")\n'),
    "allowed read": (CORE, READS + 'os.environ.get("KINFOLK_PLUGINS")\n'),
    "allowed membership": (CORE, READS + '"KINFOLK_CACHE_DIR" in os.environ\n'),
    "allowed through a constant": (CORE, READS + 'NAME = "KINFOLK_PLUGINS"\nos.environ.get(NAME)\n'),
    "file at the limit": (CORE, "x = 1\n" * 500),
    "function at the limit": (CORE, lines_of_function(80)),
    "relative path": ("docs/a.md", "see docs/wor" + "k/plan and ${root}/wor" + "k/a\n"),
    "address that is no registry": ("docs/a.md", "https://arxiv.org/abs/2405.04434\n"),
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda name: name.replace(" ", "-"))
def test_a_planted_violation_is_found_once(check, planted):
    path, text = PLANTED[planted]
    [finding] = check(path, text)
    assert finding.startswith(path)


@pytest.mark.parametrize("lawful", LAWFUL, ids=lambda name: name.replace(" ", "-"))
def test_its_lawful_neighbour_is_not(check, lawful):
    path, text = LAWFUL[lawful]
    assert check(path, text) == []


def test_the_tree_keeps_the_rules(ci_module, root: Path):
    count, found = ci_module("rules").check_tree(root)
    assert found == []
    assert count > 20, "the rules read hardly any file"
