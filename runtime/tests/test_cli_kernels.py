"""`emit`, `resources` and `verify` on a family, an arch and a toolchain made up here: output, exit status, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import attrs
import pytest
from click.testing import CliRunner

from kinfolk.arch import Arch, LoweredModule
from kinfolk.candidate import Candidate
from kinfolk.cli.app import app
from kinfolk.errors import IRError, ToolError
from kinfolk.expr import field
from kinfolk.fields import ExactInt
from kinfolk.hooks import hookimpl
from kinfolk.ir import Kernel, build_kernel
from kinfolk.ir.ops import control
from kinfolk.ir.types import I32
from kinfolk.ir.value import Value
from kinfolk.matrix import MatrixCatalog
from kinfolk.parameters import Parameter
from kinfolk.plan import Argument, Launch, Plan
from kinfolk.plugins.composition import Composition
from kinfolk.plugins.discovery import Offer
from kinfolk.plugins.loading import Loaded
from kinfolk.refusal import Limit
from kinfolk.request import Request
from kinfolk.spec import Spec
from kinfolk.usage import KernelArgument, Usage
from kinfolk_runtime.cli import emit, resources, verify
from kinfolk_runtime.compilation import _objects
from kinfolk_runtime.simulator.sanitizers import SANITIZERS
from kinfolk_runtime.spec_space import sampled, spec_space
from kinfolk_runtime.toolchains.base import Compiled, CompileJob
from kinfolk_runtime.verify import ORDER_SEEDS, runners_of

BUILTIN_OFFER = Offer(kind="command", name="verify", value="x", distribution="kinfolk-runtime", version="0")
ROW = {"code", "kind", "field", "value", "limit", "because", "remedy", "plugin"}
FIXED = {"symbol", "spec_digest", "arch", "toolchain", "scratch_bytes", "scratch_ops"}
WIDE = Limit(
    "rows.width", "cannot", "width", field("width").one_of((32, 64, 96)), because="a row is a tile", remedy="Pad it."
)


@attrs.frozen(kw_only=True)
class RowsRequest(Request):
    family: ClassVar[str] = "rows"
    rows: int = attrs.field(validator=ExactInt(1, 4096))
    width: int = attrs.field(validator=ExactInt(1, 4096))

    @classmethod
    def cli_defaults(cls, given: Any) -> dict[str, Any]:
        return {"width": 64}


@attrs.frozen(kw_only=True)
class RowsSpec(Spec):
    width: int = attrs.field(validator=ExactInt(1, 4096))

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(name="rows", type=I32),)


def plan(request: RowsRequest, arch: Arch) -> Plan:
    arguments = (Argument("rows", "i32", field("rows")),)
    launch = Launch(spec=RowsSpec(width=request.width), grid=(field("rows"), 1, 1), block=32, arguments=arguments)
    return Plan(request=request, launches=(launch,), bindings=(), outputs=())


def _meet(rows: Value) -> None:
    """Wait where there are rows: something that depends on the parameter."""
    control.if_else(rows > 0, lambda: control.barrier() or ())


class RowsFamily:
    """A family whose spec space is `widths`."""

    def __init__(self, widths: Iterable[int]) -> None:
        self.widths = tuple(widths)

    @hookimpl
    def kinfolk_request_type(self) -> type[Request]:
        return RowsRequest

    @hookimpl
    def kinfolk_candidates(self) -> list[Candidate]:
        def specs(arch: Arch, flavor: str) -> list[RowsSpec]:
            return [RowsSpec(width=width) for width in self.widths]

        newer = Candidate(
            name="rows.newer", priority=0, plugin="rows", capability=(), plan=plan, specs=specs, min_llvm=99
        )
        plain = Candidate(name="rows.plain", priority=1, plugin="rows", capability=(WIDE,), plan=plan, specs=specs)
        return [newer, plain]

    @hookimpl
    def kinfolk_emit_ir(self, spec: Spec, arch: Arch) -> Kernel:
        assert isinstance(spec, RowsSpec)
        if spec.width == 13:
            raise IRError("thirteen columns")
        return build_kernel(spec.symbol(), spec.parameters(), arch=arch, block=32, body=_meet)

    @hookimpl
    def kinfolk_reference(self) -> None:
        return None

    @hookimpl
    def kinfolk_scenarios(self) -> list[Any]:
        return []


class PaperArch:
    """An arch whose code is its LLVM IR, with the width as its only figure; width 96 spills."""

    @hookimpl
    def kinfolk_arch(self) -> Arch:
        return Arch(
            name="paper",
            target_ids=("paper",),
            wave_size=32,
            facts={},
            matrix=MatrixCatalog(()),
            lower_kernel=self.lower,
            read_usage=self.usage,
        )

    @staticmethod
    def lower(kernel: Kernel, arch: Arch, spec: Spec | None, llvm: int) -> LoweredModule:
        assert isinstance(spec, RowsSpec)
        return LoweredModule(symbol=kernel.name, text=f"; width {spec.width}", triple="t", cpu="paper")

    @staticmethod
    def usage(code: bytes, symbol: str, arch: Arch) -> Usage:
        width = int(code.split()[-1])
        return Usage(
            symbol=symbol,
            target="paper",
            scratch_bytes=8 if width == 96 else 0,
            scratch_ops=0,
            figures={"columns": width},
            arguments=(KernelArgument(offset=0, size=4, kind="value"),),
        )


class PaperToolchain:
    """A toolchain that hands the text back; width 14 breaks it."""

    name, build, flavors = "paper", "paper-1", ("llvm22",)

    def compile(self, job: CompileJob) -> Compiled:
        if job.llvm_ir.endswith(" 14"):
            raise ToolError(f"compiling {job.kernel} failed: torn")
        return Compiled(object=job.llvm_ir.encode(), assembly=f"asm {job.kernel}\n\n" if job.assembly else None)


@pytest.fixture
def composed(monkeypatch, tmp_path_factory):
    """Return a function that makes `rows` on `paper`, with a spec space, all that is installed."""
    monkeypatch.setenv("KINFOLK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr("kinfolk.plugins.loading.usable", lambda kind: ("rows",) if kind == "family" else ("paper",))
    for module in ("spec_space", "compilation", "toolchains.host"):
        monkeypatch.setattr(f"kinfolk_runtime.{module}.toolchain_for", lambda flavor: PaperToolchain())

    def loaded(kind: str, name: str, plugin: object) -> Loaded:
        return Loaded(Offer(kind=kind, name=name, value=name, distribution=name, version="0"), plugin)

    def make(*widths: int) -> Composition:
        made = Composition(loaded("family", "rows", RowsFamily(widths)), loaded("arch", "paper", PaperArch()))
        monkeypatch.setattr("kinfolk.plugins.composition.compose", lambda family, arch: made)
        return made

    yield make
    _objects.clear()


def run(module, *arguments):
    return CliRunner().invoke(module.command, arguments)


EMIT = ("rows", "--arch", "paper")


@pytest.mark.parametrize(
    "stage, begins",
    [("ir", '"builtin.module"'), ("llvm", "; width 64\n"), ("asm", "asm rows_"), (None, '"builtin.module"')],
)
def test_a_stage_goes_to_standard_output_and_what_was_filled_in_beside_it(composed, stage, begins):
    composed()
    result = run(emit, *EMIT, "rows=3", *(("--stage", stage) if stage else ()))
    assert (result.exit_code, result.stderr) == (0, "filled in: width=64\n")
    assert result.stdout.startswith(begins)
    assert result.stdout.endswith("\n") and not result.stdout.endswith("\n\n")


def test_a_file_holds_the_kernel_and_a_folder_names_it(composed, tmp_path):
    composed()
    symbol = RowsSpec(width=64).symbol()
    assert run(emit, *EMIT, "rows=3", "--stage", "object", "-o", str(tmp_path / "k.o")).exit_code == 0
    assert (tmp_path / "k.o").read_bytes() == b"; width 64"
    assert run(emit, *EMIT, "rows=3", "--stage", "llvm", "-o", str(tmp_path)).exit_code == 0
    assert (tmp_path / f"{symbol}.ll").read_text() == "; width 64\n"


@pytest.mark.parametrize(
    "words, path, said",
    [
        (("rows=3",), "deep/k.o", "there is no folder {}/deep. Make it first."),
        (("rows=3",), "file/k.o", "{}/file is a file, no folder"),
        (("--all",), "deep/er", "there is no folder {}/deep. Make it first."),
        (("--all",), "file", "{}/file is a file, no folder"),
    ],
)
def test_no_folder_is_made_that_nobody_named(composed, tmp_path, words, path, said):
    composed(32, 64)
    (tmp_path / "file").write_text("kept")
    result = run(emit, *EMIT, *words, "--stage", "llvm", "-o", str(tmp_path / path))
    assert (result.exit_code, [each.name for each in tmp_path.iterdir()]) == (1, ["file"])
    assert said.format(tmp_path) in result.stderr
    assert (tmp_path / "file").read_text() == "kept"


def test_all_writes_the_whole_space_each_spec_once(composed, tmp_path):
    composed(32, 64, 32)
    result = run(emit, *EMIT, "--all", "--stage", "llvm", "-o", str(tmp_path / "out"))
    assert result.exit_code == 0
    assert sorted(path.read_text() for path in (tmp_path / "out").iterdir()) == ["; width 32\n", "; width 64\n"]


def test_two_specs_of_one_symbol_do_not_share_a_file(monkeypatch):
    monkeypatch.setattr(RowsSpec, "symbol", lambda self: "same")
    names = emit.file_names([RowsSpec(width=32), RowsSpec(width=64)], ".ll")
    assert len(names) == 2
    assert all(name.startswith("same-") for name in names)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("rows=3", "--stage", "bundle"), "a bundle is a folder: give -o DIR"),
        (("rows=3", "--stage", "ast"), "no stage 'ast'; there are ir, llvm, asm, object, bundle"),
        (("rows=3", "--stage", "object"), "give -o PATH"),
        (("--all",), "-o PATH"),
        (("--all", "rows=3", "-o", "x"), "--all takes no KEY=VALUE"),
        (("rwos=3",), "Did you mean rows?"),
        (("rows=3", "-o", ""), "output is '', supported: the path of a file or a folder. Give -o . for this folder."),
        (("--all", "-o", ""), "output is '', supported: the path of a file or a folder"),
    ],
)
def test_what_cannot_be_emitted_is_exit_status_2_with_what_can(composed, arguments, said):
    composed()
    result = run(emit, *EMIT, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    "verb, words",
    [(emit, (*EMIT, "rows=3", "--stage", "ir")), (emit, (*EMIT, "rows=3", "--stage", "llvm")), (resources, ("rows",))],
)
def test_a_kernel_that_an_analysis_holds_something_against_is_refused_by_name(composed, monkeypatch, verb, words):
    composed(32)
    assert run(verb, *words).exit_code == 0
    monkeypatch.setitem(globals(), "_meet", lambda rows: None)
    _objects.clear()
    result = run(verb, *words)
    assert result.exit_code == 1
    told = " ".join(f"{result.output} {result.exception}".split())
    assert "RowsSpec, parameter rows: nothing" in told and "[dead_parameter]" in told


@pytest.mark.parametrize(
    "words, said",
    [(("rows=True",), "rows is True, supported: a whole number"), (("rows=3", "width=65"), "width is 65")],
)
def test_a_refused_request_emits_nothing(composed, words, said):
    composed()
    result = run(emit, *EMIT, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


def test_an_empty_space_is_a_failure(composed, tmp_path):
    composed()
    assert run(emit, *EMIT, "--all", "-o", str(tmp_path / "out")).exit_code == 1
    result = run(resources, "rows", "--json")
    assert (result.exit_code, json.loads(result.stdout)["kernels"]) == (1, [])
    assert "no kernel" in run(resources).stdout


def test_resources_of_a_space_without_and_with_a_family(composed):
    composed(32, 64)
    for words in ((), ("rows",), ("rows", "--arch", "paper", "--all")):
        result = run(resources, *words, "--json")
        document = json.loads(result.stdout)
        assert (result.exit_code, document["status"], document["refusals"]) == (0, "pass", [])
        assert [kernel["columns"] for kernel in document["kernels"]] == [32, 64]
        assert all(kernel.keys() == FIXED | {"columns"} for kernel in document["kernels"])
        assert all(kernel["toolchain"] == "paper-1" for kernel in document["kernels"])
    told = run(resources).stdout
    assert "rows on paper, llvm22: all 2 specs, compiled by paper-1" in told


def test_resources_of_a_request(composed):
    composed(32)
    document = json.loads(run(resources, "rows", "rows=3", "--json").stdout)
    assert [kernel["columns"] for kernel in document["kernels"]] == [64]
    assert document["requests"] == [{"arch": "paper", "rows": 3, "width": 64}]
    assert run(resources, "rows", "rows=3").stdout.startswith("filled in: width=64\n")


@pytest.mark.parametrize(
    "words, code, field", [("rows=2.0", "request.rows.type", "rows"), ("rows=0", "request.rows.range", "rows")]
)
def test_an_invalid_request_is_a_row(composed, words, code, field):
    composed(32)
    for module, extra in ((resources, ()), (verify, ("--arch", "paper"))):
        result = run(module, "rows", *extra, words, "--json")
        [row] = json.loads(result.stdout)["refusals"]
        assert (result.exit_code, row["code"], row["field"], row.keys()) == (1, code, field, ROW)
        assert row["limit"] and row["remedy"]


@pytest.mark.parametrize(
    "width, code, said, shown",
    [
        (96, "resources.scratch_bytes", "", 2),
        (13, "error.irerror", "thirteen columns", 1),
        (14, "error.tool_error", "torn", 1),
    ],
)
def test_one_kernel_that_fails_fails_the_run_and_hides_no_other(composed, width, code, said, shown):
    composed(width, 64)
    result = run(resources, "--json")
    document = json.loads(result.stdout)
    [row] = document["refusals"]
    assert (result.exit_code, document["status"], row["code"]) == (1, "fail", code)
    assert said in row["because"] and RowsSpec(width=width).symbol() in row["because"]
    assert len(document["kernels"]) == shown
    assert said in run(resources).stdout


@pytest.mark.parametrize("words", [("rows=3",), ("--all", "rows", "rows=3"), ("rows", "x"), ("rows", "a=b")])
def test_resources_of_words_that_do_not_go_together(composed, words):
    composed(32)
    assert run(resources, *words).exit_code == 2


def test_a_space_is_sampled_all_over_and_says_so(composed):
    made = composed(*range(100, 400))
    space = spec_space(made, "llvm22")
    assert len(space) == 300
    picked = [spec.width for spec in sampled(space, 100)]
    assert picked[0] == 100
    assert [(width - 100) // 3 for width in picked] == list(range(100))
    assert {width % 3 for width in picked} == {0, 1, 2}, "what repeats with every third spec is not passed over"
    assert sampled(space, 300) == space
    assert "64 of 300 specs" in run(resources).stdout
    assert len(json.loads(run(resources, "--all", "--json").stdout)["kernels"]) == 300


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--engine", "warp"), "no engine 'warp'; there is reference and fast"),
        (("--executor", "simulatr"), "Did you mean simulator?"),
        (
            ("--sanitize", "races"),
            "no sanitizer 'races'; there are race, memory, initialisation, sync, integer, indirection",
        ),
        (("--sanitize", "all,race"), "no sanitizer 'all'; there are race, "),
        (("--sanitize", "race,none"), "all and none stand alone"),
        (("--order-seeds", "0,-1"), "'0,-1' is no list of seeds"),
        (("--order-seeds", "0,"), "'0,' is no list of seeds"),
        (("--scenario", "ragged"), "no scenario 'ragged'"),
    ],
)
def test_verify_says_what_there_is(composed, monkeypatch, arguments, said):
    composed(32)
    monkeypatch.setattr("kinfolk.plugins.loading.installed", lambda kind: ("simulator",))
    result = run(verify, "rows", "--arch", "paper", "rows=3", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("words, seeds", [((), ORDER_SEEDS), (("--order-seeds", "7"), (7,))])
def test_verify_runs_in_the_orders_it_is_given(composed, monkeypatch, words, seeds):
    composed(32)
    asked = []
    monkeypatch.setattr("kinfolk_runtime.verify.runners_of", lambda *given: asked.append(given) or runners_of(*given))
    run(verify, "rows", "--arch", "paper", "rows=3", *words)
    assert [given[-2] for given in asked] == [seeds]
    assert "[default: 0,1,2]" in run(verify, "--help").stdout


@pytest.mark.parametrize(
    "words, looked_for",
    [
        ((), [*SANITIZERS]),
        (("--sanitize", "none"), []),
        (("--sanitize", "integer,race"), ["race", "integer"]),
    ],
)
def test_verify_looks_for_what_it_is_told_and_says_what_it_left_out(composed, words, looked_for):
    composed(32)
    report = json.loads(run(verify, "rows", "--arch", "paper", "rows=3", "--json", *words).stdout)
    assert report["sanitizers"] == looked_for
    left_out = [one for one in SANITIZERS if one not in looked_for]
    said = f"not looked for: {', '.join(left_out)} (sanitizers)"
    assert report["notes"] == ([said] if left_out else [])


def no_memory(self):
    raise MemoryError("Unable to allocate 5 TiB")


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("traceback", [(), ("--traceback",)])
def test_a_plugin_that_raises_is_a_failure_that_says_where_and_no_refusal(composed, monkeypatch, as_json, traceback):
    monkeypatch.setattr(RowsFamily, "kinfolk_scenarios", hookimpl(no_memory))
    composed(32)
    runner = CliRunner()
    monkeypatch.setattr("kinfolk.cli.app.load", lambda kind, name: Loaded(BUILTIN_OFFER, verify.command))
    words = ["verify", "rows", "--arch", "paper", "rows=3", *(["--json"] if as_json else []), *traceback]
    result = runner.invoke(app, words)
    assert result.exit_code == 1
    assert (
        ("Traceback (most recent call last)" in result.stderr) == ("in no_memory" in result.stderr) == bool(traceback)
    )
    if as_json:
        document = json.loads(result.stdout)
        [row] = document["refusals"]
        assert (document["status"], row["code"], row["field"]) == ("fail", "error.hook_fault", "kinfolk_scenarios")
        assert "MemoryError: Unable to allocate 5 TiB (test_cli_kernels.py, line " in row["because"]
    else:
        assert "--traceback prints where. " not in result.stdout and "--traceback prints where." in result.stdout
        assert result.stdout.splitlines()[-1].startswith("fail: ")


def test_verifying_nothing_fails(composed):
    composed(32)
    result = run(verify, "rows", "--arch", "paper", "rows=3")
    assert result.exit_code == 1
    assert "fail: 0 scenarios on 1 kernel" in result.stdout


def test_a_gate_that_refuses_keeps_verify_from_running(composed):
    composed(32)
    result = run(verify, "rows", "--arch", "paper", "rows=3", "width=96", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["status"], document["scenarios"]) == (1, "refused", [])
    assert document["refusals"][0]["code"] == "resources.scratch_bytes"
