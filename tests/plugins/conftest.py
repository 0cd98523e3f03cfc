"""Small real distributions: wheels written here, installed by pip, and asked about in processes of their own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

# Installs each wheel into a folder of its own; one process, since starting pip costs more than installing.
INSTALL = """
import sys
from pip._internal.cli.main import main
for pair in sys.argv[1:]:
    wheel, target = pair.split("=", 1)
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    status = main(["install", *options, "--target", target, wheel])
    if status:
        sys.exit(f"pip could not install {wheel}: {status}")
"""

FAMILY = """
import attrs
from typing import ClassVar
from kinfolk.candidate import Candidate
from kinfolk.expr import field
from kinfolk.fields import ExactInt
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel
from kinfolk.ir.types import I32
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Launch, Plan
from kinfolk.refusal import Limit, unmet
from kinfolk.request import Request
from kinfolk.spec import Spec

@attrs.frozen(kw_only=True)
class ToyRequest(Request):
    family: ClassVar[str] = "{name}"
    rows: int = attrs.field(validator=ExactInt(1, 4096))
    width: int = attrs.field(validator=ExactInt(1, 4096))
    @classmethod
    def cli_defaults(cls, given):
        return {{"width": 64}}

@attrs.frozen(kw_only=True)
class ToySpec(Spec):
    width: int = attrs.field(validator=ExactInt(16, 4096, step=16))
    def parameters(self):
        return (Parameter(name="rows", type=I32),)

TILES = field("width").one_of((64, 128))
WIDTH = Limit("{name}.width", "cannot", "width", TILES, because="a row is a tile", remedy="Pad it.")

@attrs.frozen
class Scenario:
    name: str

def plan(request, arch):
    arguments = (Argument("rows", "i32", field("rows")),)
    launch = Launch(spec=ToySpec(width=request.width), grid=(field("rows"), 1, 1), block=32, arguments=arguments)
    return Plan(request=request, launches=(launch,), bindings=(), outputs=())

@hookimpl
def kinfolk_request_type():
    return ToyRequest

@hookimpl
def kinfolk_candidates(arch):
    def one(name, priority):
        return Candidate(
            name=name,
            priority=priority,
            plugin="kinfolk-{name}",
            capability=(WIDTH,),
            plan=plan,
            specs=lambda arch, flavor: (),
        )
    return [one("{name}.first", 1), one("{name}.second", 2)]

@hookimpl
def kinfolk_emit_ir(spec, arch):
    return object.__new__(Kernel) if isinstance(spec, ToySpec) else None

@hookimpl
def kinfolk_reference(request, inputs):
    return {{"y": inputs["x"]}} if inputs else None

@hookimpl
def kinfolk_scenarios(request):
    return [Scenario("plain")]
"""

ARCH = """
from kinfolk.arch import Arch
from kinfolk.hooks import hookimpl
from kinfolk.matrix import MatrixCatalog

@hookimpl
def kinfolk_arch():
    return Arch(
        name="{name}", target_ids=("{name}",), wave_size=32, facts={{"lds_bytes": 1024}}, matrix=MatrixCatalog(()),
        lower_kernel=lambda *given: None, read_usage=lambda *given: None,
    )
"""

REFUSING_POLICY = """
from kinfolk.hooks import hookimpl
from kinfolk.refusal import Refusal
@hookimpl
def kinfolk_admit_candidate(candidate):
    if candidate.name.endswith("first"):
        yield Refusal(
            code="acme.no",
            kind="policy",
            field="rows",
            value=1,
            limit="none",
            because="b",
            remedy="r",
            plugin="acme-refuser",
        )
"""

CONDITION = 'candidate.name.endswith("first")'

IMPORTED = 'raise AssertionError("imported although metadata already said no")\n'


def distribution(
    name: str,
    modules: Mapping[str, str],
    groups: Mapping[str, Mapping[str, str]],
    *,
    version: str = "1.0",
    api: str | None = "1",
    facts: str | None = None,
) -> dict[str, Any]:
    """Return what a distribution is made of; `api` and `facts` are declared for the package of its first module."""
    package = next(iter(modules)).partition("/")[0].removesuffix(".py")
    integers = {"kinfolk.api": api, "kinfolk.facts_schema": facts}
    declared = {group: {number: package} for group, number in integers.items() if number is not None}
    return {"name": name, "version": version, "modules": dict(modules), "groups": {**groups, **declared}}


def filled(code: str, name: str) -> str:
    """Return a plugin's source with its name filled in; braces of its own are written twice."""
    return code.replace("{name}", name).replace("{{", "{").replace("}}", "}")


def family(name: str, package: str, code: str = FAMILY, dist: str = "", **options: Any) -> dict[str, Any]:
    modules = {
        f"{package}/__init__.py": "",
        f"{package}/plugin.py": filled(code, name),
    }
    return distribution(
        dist or f"kinfolk-{name}", modules, {"kinfolk.families": {name: f"{package}.plugin"}}, **options
    )


def arch(name: str, package: str, code: str = ARCH, **options: Any) -> dict[str, Any]:
    modules = {
        f"{package}/__init__.py": "",
        f"{package}/plugin.py": filled(code, name),
    }
    groups = {"kinfolk.archs": {name: f"{package}.plugin"}}
    return distribution(f"kinfolk-{name}", modules, groups, **{"facts": "1", **options})


def policy(name: str, code: str, **options: Any) -> dict[str, Any]:
    modules = {
        f"acme_{name}/__init__.py": "",
        f"acme_{name}/plugin.py": textwrap.dedent(code),
        f"acme_{name}/table.json": "{}",
    }
    return distribution(f"acme-{name}", modules, {"kinfolk.policies": {name: f"acme_{name}.plugin"}}, **options)


def hooks(body: str) -> str:
    """Return a plugin of one hook."""
    return "from kinfolk.hooks import hookimpl\n@hookimpl\n" + body


PANIC = """
class Panic(BaseException):
    def __str__(self):
        raise RuntimeError("no message either")
raise Panic
"""

BAD_HOOKS = (
    FAMILY.replace("def kinfolk_emit_ir(spec, arch)", "def kinfolk_emit_ir(spec, architecture)")
    .replace("def kinfolk_reference", "def kinfolk_refrence")
    .replace("@hookimpl\ndef kinfolk_scenarios", "def kinfolk_scenarios")
)

SECOND_EMITTER = """
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel
@hookimpl
def kinfolk_emit_ir(spec):
    return object.__new__(Kernel)
"""

SAME_CANDIDATES = """
from kinfolk.hooks import hookimpl
@hookimpl
def kinfolk_candidates(arch):
    from kinfolk_toy import plugin
    return plugin.kinfolk_candidates(arch)
"""

DISTRIBUTIONS = {
    "toy": family("toy", "kinfolk_toy"),
    "toyarch": arch("toyarch", "kinfolk_toyarch"),
    # broken ones, one way each
    "raises": family("raises", "acme_raises", 'x = 1\nraise ValueError("the driver is missing")\n'),
    "exits": family("exits", "acme_exits", 'import sys\nsys.exit("no licence")\n'),
    "hangs": family("hangs", "acme_hangs", "import time\ntime.sleep(600)\n"),
    "vanishes": family("vanishes", "acme_vanishes", "import os\nos._exit(0)\n"),
    "segfaults": family("segfaults", "acme_segfaults", "import ctypes\nctypes.string_at(0)\n"),
    "panics": family("panics", "acme_panics", PANIC),
    "crashes": family("crashes", "acme_crashes", "import os\nprint('noise')\nos.abort()\n"),
    "chatty": family("chatty", "acme_chatty", "print('[\"ok\", \"forged\"]')\nraise ImportError('after noise')\n"),
    "oldapi": family("oldapi", "acme_oldapi", IMPORTED, api="0"),
    "newapi": family("newapi", "acme_newapi", IMPORTED, api="2"),
    "noapi": family("noapi", "acme_noapi", IMPORTED, api=None),
    "oddapi": family("oddapi", "acme_oddapi", IMPORTED, api="one"),
    "oldfacts": arch("oldfacts", "acme_oldfacts", IMPORTED, facts="7"),
    "nofacts": arch("nofacts", "acme_nofacts", IMPORTED, facts=None),
    "misnamed": arch("misnamed", "acme_misnamed", ARCH.replace('name="{name}"', 'name="another"')),
    "tableless": arch(
        "tableless", "acme_tableless", ARCH.replace("    return Arch(", "    open('no-such-table')\n    return Arch(")
    ),
    "factless": arch(
        "factless", "acme_factless", ARCH.replace("matrix=Matrix", 'bounds={{"workgroup_bytes": "lds"}}, matrix=Matrix')
    ),
    "dozing": arch(
        "dozing", "acme_dozing", ARCH.replace("    return Arch(", "    import time; time.sleep(600)\n    return Arch(")
    ),
    "badhook": family("badhook", "acme_badhook", BAD_HOOKS),
    "left": family("both", "acme_left", IMPORTED, dist="acme-left"),
    "right": family("both", "acme_right", IMPORTED, dist="acme-right"),
    "oddgroup": distribution("acme-oddgroup", {"acme_oddgroup.py": ""}, {"kinfolk.famlies": {"x": "acme_oddgroup"}}),
    "badpolicy": policy("badpolicy", "raise RuntimeError('no table')\n"),
    "badcommand": distribution(
        "acme-badcommand",
        {"acme_badcommand.py": '"""Say hello."""\n1 / 0\n'},
        {"kinfolk.commands": {"hello": "acme_badcommand:hello"}},
    ),
    # good or nearly good ones beside toy
    "rival": family("toy", "acme_toy", dist="acme-toy"),
    "older": family("toy", "kinfolk_toy", version="0.9"),
    "reverse": policy(
        "reverse", hooks("def kinfolk_rank(request, survivors):\n    return tuple(reversed(survivors))\n")
    ),
    "dropper": policy("dropper", hooks("def kinfolk_rank(survivors):\n    return survivors[:1]\n")),
    "refuser": policy("refuser", REFUSING_POLICY),
    "impostor": policy("impostor", REFUSING_POLICY.replace("acme-refuser", "kinfolk-tooy").replace(CONDITION, "True")),
    "second_emitter": policy("second_emitter", SECOND_EMITTER),
    "same_candidates": policy("same_candidates", SAME_CANDIDATES),
    "raising": policy("raising", hooks("def kinfolk_admit_candidate(candidate):\n    return {}['threshold']\n")),
    "seven": policy("seven", hooks("def kinfolk_useful_flops(request):\n    return 7\n")),
    "again": policy("again", hooks("def kinfolk_useful_flops(request):\n    return 7\n")),
    "unmeasured": policy("unmeasured", hooks("def kinfolk_useful_flops(request):\n    return True\n")),
    "wordy": policy("wordy", hooks("def kinfolk_admit_candidate(candidate):\n    return 'no'\n")),
    "forgetful": policy("forgetful", hooks("def kinfolk_gate_resources(usage):\n    pass\n")),
}


def changed(old: str, new: str) -> str:
    """Return the good family with one line that is not good."""
    assert old in FAMILY, old
    return FAMILY.replace(old, new, 1)


EXIT = "raise SystemExit(0)"
PLAN = '    arguments = (Argument("rows"'
DEFAULTS = '        return {{"width": 64}}'
SPECS = "specs=lambda arch, flavor: ()"
PARAMETERS = '        return (Parameter(name="rows", type=I32),)'
GATES = """
class _Gate:
    name, build, flavors = "gate", "gate-1", ("llvm22",)
    def compile(self, job):
        raise SystemExit(0)
gate = _Gate
nothing = lambda: 3
instance = _Gate()
class _Raising(_Gate):
    @property
    def flavors(self):
        raise SystemExit(0)
raising = _Raising
"""

DISTRIBUTIONS |= {
    # families that fail outside their hooks
    "planexit": family("planexit", "acme_planexit", changed(PLAN, f"    {EXIT}\n{PLAN}")),
    "planmut": family(
        "planmut", "acme_planmut", changed(PLAN, f"    object.__setattr__(request, 'width', 128)\n{PLAN}")
    ),
    "specsexit": family("specsexit", "acme_specsexit", changed(SPECS, "specs=lambda arch, flavor: exit(0)")),
    "specsjunk": family("specsjunk", "acme_specsjunk", changed(SPECS, "specs=lambda arch, flavor: [1, 2]")),
    "symbolexit": family(
        "symbolexit", "acme_symbolexit", changed(PARAMETERS, f"{PARAMETERS}\n    def symbol(self):\n        {EXIT}")
    ),
    "symbolodd": family(
        "symbolodd",
        "acme_symbolodd",
        changed(PARAMETERS, f"{PARAMETERS}\n    def symbol(self):\n        return '../x'"),
    ),
    "liar": family(
        "liar", "acme_liar", changed(PARAMETERS, f"{PARAMETERS}\n    def identity(self):\n        return 'same'")
    ),
    "parametersodd": family("parametersodd", "acme_parametersodd", changed(PARAMETERS, "        return [3]")),
    "defaultsexit": family("defaultsexit", "acme_defaultsexit", changed(DEFAULTS, f"        {EXIT}")),
    "defaultsodd": family("defaultsodd", "acme_defaultsodd", changed(DEFAULTS, '        return {{"depth": 3}}')),
    "defaultsbad": family("defaultsbad", "acme_defaultsbad", changed(DEFAULTS, '        return {{"width": 2.5}}')),
    "checkexit": family(
        "checkexit",
        "acme_checkexit",
        changed("    @classmethod", f"    def check(self):\n        {EXIT}\n    @classmethod"),
    ),
    "named": family("named", "acme_named", changed('one("{name}.first", 1)', 'one("a b\\n[red]", 1)')),
    "worded": family("worded", "acme_worded", changed('one("{name}.first", 1)', 'one("{name}.first", "high")')),
    "printing": family("printing", "acme_printing", changed(PLAN, f"    print('NOISE')\n{PLAN}") + "print('NOISE')\n"),
    "forks": family(
        "forks",
        "acme_forks",
        changed(PLAN, PLAN)
        + "import os\nchild = os.fork()\nchild or os._exit(0)\nassert os.waitpid(child, 0)[1] == 0\n",
    ),
    "writing": family(
        "writing",
        "acme_writing",
        changed('    return {{"y": inputs["x"]}} if inputs else None', '    inputs["x"][...] = 0\n    return {{}}'),
    ),
    # policies that break those who did not ask for them
    "pexits": policy("pexits", "import os\nos._exit(0)\n"),
    "pinterrupts": policy("pinterrupts", "raise KeyboardInterrupt\n"),
    "phangs": policy("phangs", "import time\ntime.sleep(600)\n"),
    "pchanges": policy(
        "pchanges",
        hooks(
            "def kinfolk_rank(request, survivors):\n    object.__setattr__(request, 'rows', 9)\n    return survivors\n"
        ),
    ),
    "pfacts": policy(
        "pfacts", hooks("def kinfolk_admit_candidate(arch):\n    arch.facts['lds_bytes'] = 1\n    return ()\n")
    ),
    # verbs and toolchains
    "verbs": distribution(
        "acme-verbs",
        {
            "acme_verbs.py": "import click, sys\n@click.command()\ndef c():\n    sys.exit(0)\n"
            "@click.command()\ndef d():\n    raise ValueError('inside')\n"
        },
        {
            "kinfolk.commands": {
                "list": "acme_verbs:c",
                "why": "acme_verbs:c",
                "ends": "acme_verbs:c",
                "raises": "acme_verbs:d",
            }
        },
    ),
    "gates": distribution(
        "acme-gates",
        {"acme_gates.py": GATES},
        {
            "kinfolk.toolchains": {name: f"acme_gates:{name}" for name in ("gate", "nothing", "instance", "raising")},
            "kinfolk.executors": {"nobody": "acme_gates:nothing"},
        },
    ),
}


def write_wheel(folder: Path, parts: Mapping[str, Any]) -> Path:
    """Write a wheel as its specification says: files, metadata, entry points, and a record with digests."""
    stem = f"{parts['name'].replace('-', '_')}-{parts['version']}"
    info = f"{stem}.dist-info"
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in parts["groups"].items()
    )
    files = {
        **parts["modules"],
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {parts['name']}\nVersion: {parts['version']}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = "".join(f"{path},{_digest_and_size(text.encode())}\n" for path, text in files.items())
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    return path


def _digest_and_size(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(content)}"


class Environment:
    """The environment that runs the tests, with some of the distributions above installed into it."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = [str(folder) for folder in folders]

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run Python with `arguments` here; `settings` are environment variables."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KINFOLK_", "COVERAGE"))}
        inherited = os.environ.get("PYTHONPATH")
        paths = [*self.folders, *([inherited] if inherited else [])]
        kept |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200", **settings}
        return subprocess.run(
            [sys.executable, *arguments], env=kept, capture_output=True, text=True, timeout=60, check=False
        )

    def ask(self, code: str, **settings: str) -> Any:
        """Return what `code` stores in `answer`, having run in a fresh process; an error there is an error here."""
        done = self.run("-c", f"import json\n{textwrap.dedent(code)}\nprint(json.dumps(answer))", **settings)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def kinfolk(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.run("-m", "kinfolk.cli", *arguments, **settings)


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each distribution, into which pip installed its wheel."""
    root = tmp_path_factory.mktemp("sites")
    pairs: list[str] = []
    for key, parts in DISTRIBUTIONS.items():
        (root / "wheels" / key).mkdir(parents=True)
        pairs.append(f"{write_wheel(root / 'wheels' / key, parts)}={root / key}")
    done = subprocess.run([sys.executable, "-c", INSTALL, *pairs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {key: root / key for key in DISTRIBUTIONS}


@pytest.fixture(scope="session")
def environment(sites: dict[str, Path]) -> Callable[..., Environment]:
    """Return an environment with the named distributions, first on the path first."""
    return lambda *names: Environment(sites[name] for name in names)
