"""An arch is a folder: a copy of one under another name serves every family alike, and one that is missing is missed
by name only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("mla", "gfx942")

TWIN = "twin"
REQUEST = "num_heads=128 num_seqs=2 total_q=2 max_seqlen_q=1 max_seqlen_k=100 absorbed_query=true"
WORDS = ["mla", *REQUEST.split()]
SELECTED = "mla.pipelined"
"""What serves the request on gfx942 and gfx950."""
Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def twin_site(
    root: Path, tmp_path_factory: pytest.TempPathFactory, pip_installed: Callable[[Path, Path], None]
) -> Path:
    """Return a folder into which pip installed a copy of gfx942's distribution under another name."""
    source, site = tmp_path_factory.mktemp("source") / TWIN, tmp_path_factory.mktemp("site")
    shutil.copytree(root / "arch" / "gfx942", source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    (source / "src" / "kinfolk_gfx942").rename(source / "src" / f"kinfolk_{TWIN}")
    for path in source.rglob("*"):
        if path.suffix in (".py", ".toml"):
            text = re.sub(r"kinfolk([-_])gfx942", rf"kinfolk\1{TWIN}", path.read_text(encoding="utf-8"))
            text = text.replace('name="gfx942"', f'name="{TWIN}"').replace("gfx942 = ", f"{TWIN} = ")
            path.write_text(text, encoding="utf-8")
    pip_installed(source, site)
    return site


MOST = 32
"""Of how many specs of a family kernels are compared, evenly spaced over its space: what differs is the arch's."""
DIGESTS = """
    import hashlib, json
    digest = lambda data: hashlib.sha256(data).hexdigest()
    from kinfolk import compose
    from kinfolk.ir.text import kernel_digest
    from kinfolk_runtime.spec_space import sampled, spec_space
    answer = {}
    for family in FAMILIES:
        for name in ("gfx942", "twin"):
            composition = compose(family, name)
            arch, seen, emitted = composition.arch, {}, {}
            for flavor, llvm in (("llvm20", 20), ("llvm22", 22)):
                for spec in sampled(spec_space(composition, flavor), MOST):
                    assert not composition.validate_spec(spec)
                    if spec not in emitted:
                        emitted[spec] = composition.emit(spec)
                    kernel = emitted[spec]
                    text = arch.lower(kernel, spec, llvm).text
                    seen[spec.identity() + flavor] = kernel_digest(kernel), digest(text.encode())
            answer[family + " on " + name] = seen, arch.name
    print(json.dumps(answer))
"""


def test_a_copy_under_another_name_makes_families_emit_identical_kernels(twin_site: Path, ran: Ask) -> None:
    families = sorted({entry.name for entry in importlib.metadata.entry_points(group="kinfolk.families")})
    code = textwrap.dedent(DIGESTS).replace("FAMILIES", repr(families)).replace("MOST", str(MOST))
    done = ran([twin_site], "-c", code)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert len(answer) == 2 * len(families) > 0
    for family in families:
        (original, name), (copy, copied) = answer[f"{family} on gfx942"], answer[f"{family} on twin"]
        assert (name, copied) == ("gfx942", TWIN)
        assert original == copy
        assert original or family != "mla"


def test_the_copy_is_an_arch_like_any_other(twin_site: Path, ran: Ask) -> None:
    done = ran([twin_site], "-m", "kinfolk.cli", "why", *WORDS[:1], "--arch", TWIN, "--json", *WORDS[1:])
    document = json.loads(done.stdout)
    assert (done.returncode, document["selected"]) == (0, SELECTED)
    assert "kinfolk-twin" in ran([twin_site], "-m", "kinfolk.cli", "list").stdout


def installation(folder: Path, without: str = "") -> list[Path]:
    """Return folders that hold what is installed here, links to it, but for one of our distributions."""
    ours, others = folder / "ours", folder / "others"
    for place in (ours, others):
        place.mkdir(parents=True)
    for dist in importlib.metadata.distributions():
        name = dist.metadata["Name"]
        if not re.match(r"kinfolk[-_.]", name) or re.sub(r"[-_.]+", "-", name) == without:
            continue
        info = Path(str(dist.locate_file(""))) / f"{name.replace('-', '_')}-{dist.version}.dist-info"
        package = "kinfolk" if name.endswith("core") else name.replace("-", "_")
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations is not None
        if not (ours / package).exists():
            (ours / package).symlink_to(next(iter(spec.submodule_search_locations)))
            (ours / info.name).symlink_to(info)
    for entry in sorted({Path(path) for path in sys.path if path.endswith("site-packages")}):
        for each in entry.iterdir():
            if "kinfolk" not in each.name and not (others / each.name).exists():
                (others / each.name).symlink_to(each)
    return [ours, others]


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory, ran: Ask) -> Ask:
    paths = installation(tmp_path_factory.mktemp("without"), "kinfolk-gfx950")
    return lambda *words: ran(paths, "-m", "kinfolk.cli", *words, isolated=True)


def test_why_says_what_to_install(without: Ask) -> None:
    done = without("why", "mla", "--arch", "gfx950", *WORDS[1:])
    assert done.returncode == 1
    assert "pip install kinfolk-gfx950" in done.stdout
    [row] = json.loads(without("why", "mla", "--arch", "gfx950", "--json", *WORDS[1:]).stdout)["refusals"]
    assert row["code"] == "arch.unknown" and "pip install kinfolk-gfx950" in row["remedy"]


def test_everything_else_works_without_it(without: Ask) -> None:
    listed = without("list")
    assert "gfx942" in listed.stdout and "gfx950" not in listed.stdout
    asked = without("why", "mla", "--arch", "gfx942", "--json", *WORDS[1:])
    assert (asked.returncode, json.loads(asked.stdout)["selected"]) == (0, SELECTED)


@pytest.mark.compile
@pytest.mark.simulate
def test_a_kernel_is_compiled_and_verified_without_it(without: Ask) -> None:
    words = [word.replace("100", "20") for word in WORDS[1:]]
    done = without("verify", "mla", "--arch", "gfx942", "--json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["status"] == "pass"


@pytest.mark.needs("gfx950")
def test_the_same_folders_with_it_know_it(tmp_path: Path, ran: Ask) -> None:
    """The control: it is the missing distribution that is missed, not something else of those folders."""
    paths = installation(tmp_path)
    done = ran(paths, "-m", "kinfolk.cli", "why", "mla", "--arch", "gfx950", "--json", *WORDS[1:], isolated=True)
    assert (done.returncode, json.loads(done.stdout)["selected"]) == (0, SELECTED)
