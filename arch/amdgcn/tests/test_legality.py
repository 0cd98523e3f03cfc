"""An op that the processor lacks is refused by name, with what there is instead; so is what was never measured."""

from __future__ import annotations

import json
from functools import partial

import pytest

from kinfolk.arch import Arch
from kinfolk.errors import IllegalOp, InternalError, PluginError, ToolError
from kinfolk.ir import build_kernel, rules
from kinfolk.ir.meaning import ScheduleMarker
from kinfolk.ir.op import OpDef, effects
from kinfolk.matrix import MatrixCatalog
from kinfolk_amdgcn import ops
from kinfolk_amdgcn.legality import Legality, Row, Statement
from kinfolk_amdgcn.legality.measure import instructions, measure, statuses
from kinfolk_amdgcn.legality.table import FILE, TOOL
from kinfolk_amdgcn.legality.usage import statements_of
from kinfolk_amdgcn.lowering import float8, lower_kernel

PROCESSORS = ("gfx942", "gfx950")
FACTS = {"lds_bytes": 65536, "simds_per_cu": 4, "max_waves_per_simd": 8, "max_workgroup_size": 1024}
FACTS |= {"buffer_word3": 0x00027000, "fp8_format": "fnuz"}
LOAD_TO_LDS = "call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) ?, ptr addrspace(3) ?, i32 {}, i32 0, i32 0)"
DPP = "call i32 @llvm.amdgcn.update.dpp.i32(i32 ?, i32 ?, i32 {}, i32 15, i32 15, i1 true)"
FMA = "call <{0} x {2}> @llvm.fma.v{0}{1}(<{0} x {2}> ?, <{0} x {2}> ?, <{0} x {2}> ?)"


def row(text, status="ok", **used_by):
    """Return a row of one processor, of LLVM 20 and 22 alike."""
    used = {int(llvm.removeprefix("llvm")): ops for llvm, ops in used_by.items()}
    return Row(statement=Statement(text), status={llvm: {"gfx942": status} for llvm in (20, 22)}, used_by=used)


TABLE = Legality(
    (
        row("call void @llvm.amdgcn.s.barrier()", llvm20=("own.barrier",)),
        row(LOAD_TO_LDS.format(4)),
        row(LOAD_TO_LDS.format(16), "arch_absent"),
        row(DPP.format(177)),
        row(DPP.format(27)),
        row(FMA.format(2, "f32", "float")),
    ),
    {"llvm20": "llvm-20", "llvm22": "llvm-22"},
)


def marker(name, function):
    """Return an op whose lowering is one call without operands."""
    return OpDef(
        name=name,
        result=rules.fixed(),
        effects=effects("convergent"),
        meaning=ScheduleMarker(),
        lowering=lambda w, op: w.call("void", function),
    )


def an_arch(processor="gfx942", own=(), lower=None, without=None):
    return Arch(
        name=f"test-{processor}",
        target_ids=(processor,),
        wave_size=64,
        facts=FACTS,
        matrix=MatrixCatalog(()),
        ops=(*ops.OPS, *own),
        lacking=without or {},
        lacking_types=float8.lacking_types(FACTS),
        lower_kernel=lower or partial(lower_kernel, legality=TABLE),
        read_usage=lambda code, symbol, arch: None,
    )


def lowered(op, llvm=22, **more):
    arch = an_arch(own=(op,), **more)
    kernel = build_kernel("k", (), arch=arch, block=64, body=lambda: op.add() and None)
    return arch.lower(kernel, None, llvm).text


def test_the_file_is_written_as_it_is_read():
    text = TABLE.to_json()
    assert Legality.from_json(text).to_json() == text and json.loads(text)["schema"].startswith("kinfolk.amdgcn")
    with pytest.raises(ValueError, match="schema else/2"):
        Legality.from_json(text.replace("kinfolk.amdgcn.legality/1", "else/2"))


def test_a_table_is_read_from_the_package_that_it_lies_in(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {"sound_rows": TABLE.to_json(), "no_rows": None, "cut_rows": TABLE.to_json()[:-9]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        if text is not None:
            (tmp_path / name / FILE).write_text(text)
    assert Legality.of_package("sound_rows").to_json() == TABLE.to_json()
    assert Legality.of_package("no_rows").rows == ()
    with pytest.raises(PluginError, match=rf"cut_rows.{FILE} is no table .*JSONDecodeError.* delete it, .*{TOOL}"):
        Legality.of_package("cut_rows")


def test_a_call_that_is_absent_is_refused_when_lowered_with_what_there_is_instead():
    op = marker("own.absent", "llvm.amdgcn.tanh.f32")
    table = Legality(
        (
            Row(statement=Statement("call void @llvm.amdgcn.tanh.f32()"), status={22: {"gfx942": "arch_absent"}}),
            Row(statement=Statement("call float @llvm.amdgcn.tanh.f32.x(float ?)"), status={22: {"gfx942": "ok"}}),
        )
    )
    with pytest.raises(IllegalOp) as caught:
        lowered(op, lower=partial(lower_kernel, legality=table))
    said = str(caught.value)
    for part in ("own.absent", "test-gfx942", "gfx942 with LLVM 22", "arch_absent", "it has llvm.amdgcn.tanh.f32.x"):
        assert part in said
    assert "test_legality.py" in said  # where it was built


def test_a_call_that_was_never_measured_is_refused_with_the_command_that_measures_it():
    with pytest.raises(IllegalOp, match=r"own.new.*llvm.amdgcn.no.such has not been measured for gfx942 with LLVM 22"):
        lowered(marker("own.new", "llvm.amdgcn.no.such"))
    with pytest.raises(IllegalOp, match=rf"not been measured for gfx90a .*`python {TOOL} gfx90a`.* writes {FILE}"):
        lowered(marker("own.barrier", "llvm.amdgcn.s.barrier"), processor="gfx90a")


def test_a_call_that_is_there_is_written():
    """Negative control of the refusals, also for an LLVM newer than any measured: by rank, and for one's own table."""
    op = marker("own.barrier", "llvm.amdgcn.s.barrier")
    for llvm in (20, 22, 23):
        assert "call void @llvm.amdgcn.s.barrier()" in lowered(op, llvm)
    unjudged = partial(lower_kernel, legality=None)
    assert "llvm.amdgcn.no.such" in lowered(marker("own.new", "llvm.amdgcn.no.such"), lower=unjudged)


def test_legality_is_by_llvm_generation():
    text = Statement("call void @llvm.amdgcn.later()")
    table = Legality((Row(statement=text, status={20: {"gfx942": "name_absent"}, 22: {"gfx942": "ok"}}),))
    op, lower = marker("own.later", "llvm.amdgcn.later"), partial(lower_kernel, legality=table)
    assert lowered(op, 22, lower=lower)
    with pytest.raises(IllegalOp, match=r"name_absent on gfx942 with LLVM 20.*nothing of its kind"):
        lowered(op, 20, lower=lower)


def test_an_op_that_is_lacking_is_refused_where_it_is_built():
    absent = Statement("call void @llvm.amdgcn.absent()")
    here = Row(
        statement=absent,
        status={20: {"gfx942": "crash", "gfx950": "crash"}, 22: {"gfx942": "arch_absent", "gfx950": "ok"}},
        used_by={20: ("own.absent",), 22: ("own.absent",)},
    )
    table = Legality((here,))
    op = marker("own.absent", "llvm.amdgcn.absent")
    without = table.lacking("gfx942", [op.name, "core.add"])
    assert list(without) == ["own.absent"] and table.lacking("gfx950", [op.name]) == {}
    assert list(table.lacking("gfx950", [op.name], llvm=20)) == ["own.absent"]
    arch = an_arch(own=(op,), without=without)
    assert not arch.has("own.absent")
    with pytest.raises(IllegalOp, match=r"own.absent is not legal on test-gfx942: llvm.amdgcn.absent is arch_absent"):
        build_kernel("k", (), arch=arch, block=64, body=lambda: op.add() and None)


def test_vectors_of_llvms_own_intrinsics_may_have_any_length():
    wide = Statement(FMA.format(3, "f32", "float"))
    assert TABLE.refusal(wide, "gfx942", 22) is None
    other = Statement(FMA.format(3, "f16", "half"))
    assert "has not been measured" in str(TABLE.refusal(other, "gfx942", 22))


def test_a_written_call_is_found_whatever_its_names_and_literals():
    written = Statement.of_call(
        "i32", "llvm.amdgcn.update.dpp.i32", ("i32 poison", "i32 %v.7", "i32 177", "i32 15", "i32 15", "i1 true")
    )
    found = TABLE.find(written)
    assert found is not None and found.statement.text == written.text == DPP.format(177)
    stage = ("ptr addrspace(1) %x", "ptr addrspace(3) @k.workgroup0", "i32 immarg 16", "i32 0", "i32 0")
    found = TABLE.find(Statement.of_call("void", "llvm.amdgcn.global.load.lds", stage))
    assert found is not None and found.statement == Statement(LOAD_TO_LDS.format(16))
    with pytest.raises(InternalError, match="no type or no value"):
        _ = Statement("call void @f(i32)").literals


class FakeLane:
    """A compiler of which everything is known: each trap in one word of the statement."""

    def __init__(self):
        self.seen = []

    def compile(self, llvm_ir, processor):
        self.seen.append((processor, llvm_ir))
        for word, said in {
            "absent": "the worker ended with signal 6; LLVM ERROR: Cannot select: intrinsic",
            "dies": "the worker ended with signal 11",
            "refused": "Intrinsic has incorrect argument type!",
        }.items():
            if f"@{word}" in llvm_ir:
                raise ToolError(f"compiling probe failed: {said}")
        lines = ["\ts_nop 0 ; comment", ".LBB0_1:", "\ts_wrong" if "@wrong" in llvm_ir else "\ts_endpgm"]
        if "@folded" in llvm_ir and "load" in llvm_ir:
            lines.append("\ts_wrong")
        return llvm_ir.encode(), "\n".join(["\t.text", "probe:", *lines, "\t.section x", "\ts_wrong"])

    def link(self, code):
        if b"@nobody" in code:
            raise ToolError("linking failed: undefined hidden symbol: nobody")
        return code

    def refused_lines(self, lines, processor):
        return {number for number, line in enumerate(lines) if line == "s_wrong"}


def test_each_way_to_fail_has_its_status():
    names = ("fine", "absent", "dies", "refused", "nobody", "wrong", "folded")
    statements = [Statement(f"call void @{name}(i32 ?)") for name in names]
    expected = [
        "ok",
        "arch_absent",
        "crash",
        "rejected",
        "name_absent",
        "wrong_instruction",
        "wrong_instruction:per_lane",
    ]
    assert statuses(statements, FakeLane(), "gfx942") == expected
    rows = measure(statements, {statements[0]: {22: ("own.op",)}}, {22: FakeLane()}, PROCESSORS)
    assert [row.statement for row in rows] == sorted(statements)
    fine = next(row for row in rows if row.statement == statements[0])
    assert fine.status == {22: {"gfx942": "ok", "gfx950": "ok"}} and fine.used_by == {22: ("own.op",)}


def test_a_linker_that_fails_otherwise_is_no_status():
    class Broken(FakeLane):
        def link(self, code):
            raise ToolError("linking failed: no space left")

    with pytest.raises(ToolError, match="no space left"):
        statuses([Statement("call void @fine()")], Broken(), "gfx942")


def test_only_the_probes_own_instructions_are_looked_at():
    lines = ["", "a:", "\ts_other", "probe:", "; %bb.0:", "\ts_nop 0", ".LBB0_1:  ; %loop", "\ts_endpgm ; end"]
    lines += ["\t.section .rodata", "\ts_more"]
    assert instructions("\n".join(lines)) == ["s_nop 0", "s_endpgm"]


def test_values_of_a_probe_are_each_lanes_own_or_the_kernels():
    statement = Statement("call i32 @llvm.amdgcn.ds.bpermute(i32 ?, i32 ?)")
    assert "load i32" in statement.module(uniform=False) and "load" not in statement.module(uniform=True)
    pointers = Statement("call <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3) ?)")
    assert not pointers.takes_data and "load" not in pointers.module(uniform=False)


def test_what_an_arch_lacks_is_found_again_by_the_next_measurement():
    """Measured is also what the table of before calls lacking; else the next table would know no op that writes it."""
    op = marker("own.absent", "llvm.amdgcn.absent")
    called = Statement("call void @llvm.amdgcn.absent()")
    found = statements_of(an_arch(own=(op,), without={"own.absent": "it is not there"}), (22,), ())
    assert found[called] == {22: ("own.absent",)}
    assert called not in statements_of(an_arch(), (22,), ())
