"""What a composition joins, imports and combines; every rule between distributions that pip installed."""

import pytest

from kinfolk.plugins.faults import near_miss

COMPOSE = "from kinfolk.plugins.composition import compose\n"
TOY = COMPOSE + "composition = compose('toy', 'toyarch')\nfrom kinfolk_toy.plugin import ToyRequest, ToySpec\n"
FAILING = """
try:
    {statement}
except kinfolk.KinfolkError as error:
    answer = [type(error).__name__, str(error), isinstance(error, kinfolk.PluginError)]
else:
    answer = "nothing was raised"
"""


def failure(statement):
    return "import kinfolk\n" + FAILING.format(statement=statement)


def test_it_joins_core_family_arch_and_policies(environment):
    answer = environment("toy", "toyarch", "reverse").ask(
        TOY
        + "answer = [composition.arch.name, composition.request_type.__name__, dict(composition.versions),"
        + "dict(composition.policy_digests), "
        "[c.name for c in composition.candidates()], [s.name for s in composition.scenarios(None)]]"
    )
    assert answer[:2] == ["toyarch", "ToyRequest"]
    assert answer[2] == {"kinfolk-core": "0.1.0", "kinfolk-toy": "1.0", "kinfolk-toyarch": "1.0", "acme-reverse": "1.0"}
    assert [*answer[3]] == ["reverse"]
    assert answer[4:] == [["toy.first", "toy.second"], ["plain"]]


def test_it_imports_that_family_and_that_arch_and_no_other_plugin(environment):
    loaded = environment("toy", "toyarch", "rival", "oldapi", "hangs", "left", "raises").ask(
        "import sys\nfrom kinfolk.plugins.loading import installed\n"
        "names = [*installed('family'), *installed('arch')]\n"
        "before = [name for name in sys.modules if name.startswith(('acme', 'kinfolk_'))]\n"
        + COMPOSE
        + "compose('toy', 'toyarch')\n"
        "answer = [before, [name for name in sys.modules if name.startswith(('acme', 'kinfolk_'))], names]",
        KINFOLK_PLUGINS="kinfolk-toy,toyarch,hangs,raises",
    )
    assert loaded[0] == []
    assert sorted(loaded[1]) == ["kinfolk_toy", "kinfolk_toy.plugin", "kinfolk_toyarch", "kinfolk_toyarch.plugin"]
    assert {"toy", "toyarch", "hangs", "raises", "both"} <= set(loaded[2])


THREADS = """
import contextlib, sys, threading
from kinfolk.plugins import composition, discovery, loading
if {unlocked}:
    composition.LOCK = discovery.LOCK = loading.LOCK = contextlib.nullcontext()
sys.setswitchinterval(1e-6)
gate, found = threading.Barrier(16), []
def work():
    gate.wait()
    with contextlib.suppress(Exception):
        found.append(composition.compose("toy", "toyarch"))
threads = [threading.Thread(target=work) for _ in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
answer = [len(found), len(set(map(id, found)))]
"""


def test_many_threads_get_one_composition(environment):
    assert environment("toy", "toyarch").ask(THREADS.format(unlocked=False)) == [16, 1]


def test_the_threads_do_meet(environment):
    """Negative control: without the one lock, they run into each other."""
    assert environment("toy", "toyarch").ask(THREADS.format(unlocked=True)) != [16, 1]


@pytest.mark.parametrize(
    "kind, statement",
    [
        ("family", "kinfolk.compose('toi', 'toyarch')"),
        ("arch", "kinfolk.compose('toy', 'toyarhc')"),
    ],
)
def test_an_unknown_name_lists_what_is_installed_and_what_to_install(environment, kind, statement):
    name, text, plugin_error = environment("toy", "toyarch").ask(failure(statement))
    assert (name, plugin_error) == ("UnknownPlugin", True)
    asked, near = {"family": ("toi", "toy"), "arch": ("toyarhc", "toyarch")}[kind]
    assert f"no {kind} {asked!r} is installed" in text
    assert f"Did you mean {near}?" in text
    assert "pip install" not in text
    assert ("docs/bringing-up-an-arch.md" in text) == (kind == "arch")


@pytest.mark.parametrize("given, meant", [("TOY", "toy"), ("toi", "toy"), ("toyarch", None), ("tooy", "toy")])
def test_a_near_miss_is_a_letter_or_two_apart(given, meant):
    assert near_miss(given, ("toy", "gfx942")) == meant
    assert near_miss("gfx950", ("gfx942",)) is None
    assert near_miss("gfx924", ("gfx942",)) == near_miss("gfx942:sramecc+:xnack-", ("gfx942",)) == "gfx942"


def test_a_name_that_is_near_none_is_installed_by_a_distribution_or_is_none(environment):
    toy = environment("toy", "toyarch")
    text = toy.ask(failure("kinfolk.compose('toy', 'other_arch')"))[1]
    assert "pip install kinfolk-other-arch. To write it: kinfolk new arch other_arch; docs/" in text
    assert "pip install" not in toy.ask(failure("kinfolk.compose('toy', 'num_heads=3')"))[1]
    text = toy.ask(failure("kinfolk.compose('toy', 'toyarch')"), KINFOLK_DISABLE_AUTOLOAD="1")[1]
    assert "discovery is off (KINFOLK_DISABLE_AUTOLOAD=1)" in text and "pip install" not in text
    text = toy.ask(failure("kinfolk.compose('toy', 'toyarch')"), KINFOLK_PLUGINS="toy")[1]
    assert "KINFOLK_PLUGINS does not name it. Add kinfolk-toyarch to it" in text


def test_a_plugin_that_no_distribution_has_is_named_by_no_refusal(environment):
    text = environment("toy", "toyarch", "impostor").ask(TOY + failure("composition.admit(None, None, None)"))[1]
    assert "names the plugin 'kinfolk-tooy', no distribution is; here: kinfolk-toy or" in text


@pytest.mark.parametrize(
    "key, state, cause",
    [
        ("raises", "import error", "ValueError: the driver is missing"),
        ("exits", "import error", "SystemExit"),
        ("oldapi", "api mismatch", "written for kinfolk.api 0"),
        ("badhook", "rejected", "takes (spec, architecture)"),
    ],
)
def test_a_family_that_cannot_be_used_says_why_each_time(environment, key, state, cause):
    twice = (
        f"import kinfolk\nanswer = []\nfor _ in range(2):\n    try:\n        kinfolk.compose('{key}', 'toyarch')\n"
        "    except kinfolk.PluginError as error:\n        answer.append(str(error))"
    )
    first, second = environment("toyarch", key).ask(twice)
    assert first == second
    assert f"family {key} of kinfolk-{key} cannot be used ({state})" in first
    assert cause in first


def test_a_name_offered_twice_is_a_conflict_that_the_allow_list_decides(environment):
    both = environment("toy", "toyarch", "rival")
    name, text, _ = both.ask(failure("kinfolk.compose('toy', 'toyarch')"))
    assert name == "UnusablePlugin"
    assert "kinfolk-toy 1.0 (kinfolk_toy.plugin)" in text
    assert "acme-toy 1.0 (acme_toy.plugin)" in text
    decided = COMPOSE + "answer = dict(compose('toy', 'toyarch').versions)"
    assert "acme-toy" in both.ask(decided, KINFOLK_PLUGINS="acme_toy, toyarch")


def test_two_emitters_are_an_error_that_names_both_and_none_is_one_too(environment):
    text = environment("toy", "toyarch", "second_emitter").ask(TOY + failure("composition.emit(ToySpec(width=64))"))[1]
    assert "family toy (kinfolk-toy 1.0) and by policy second_emitter (acme-second_emitter 1.0)" in text
    alone = environment("toy", "toyarch")
    assert alone.ask(TOY + "answer = type(composition.emit(ToySpec(width=64))).__name__") == "Kernel"
    other = "from kinfolk.spec import Spec\n@attrs.frozen(kw_only=True)\nclass Other(Spec):\n    pass\n"
    text = alone.ask(TOY + "import attrs\n" + other + failure("composition.emit(Other())"))[1]
    assert "kinfolk_emit_ir for Other is answered by none" in text
    assert "asked: family toy (kinfolk-toy 1.0)" in text


def test_exactly_one_reference_answers(environment):
    toy = environment("toy", "toyarch")
    assert toy.ask(TOY + "answer = composition.reference(None, {'x': 2})") == {"y": 2}
    assert (
        "kinfolk_reference for NoneType is answered by none"
        in toy.ask(TOY + failure("composition.reference(None, {})"))[1]
    )


def test_useful_work_is_said_by_one_plugin_or_by_none(environment):
    asked = "composition.useful_flops(None, '', {})"
    assert environment("toy", "toyarch").ask(f"{TOY}answer = {asked}") is None
    assert environment("toy", "toyarch", "seven").ask(f"{TOY}answer = {asked}") == 7
    text = environment("toy", "toyarch", "seven", "unmeasured").ask(TOY + failure(asked))[1]
    assert "policy unmeasured (acme-unmeasured 1.0): kinfolk_useful_flops returned True, it returns an int" in text
    text = environment("toy", "toyarch", "seven", "again").ask(TOY + failure(asked))[1]
    assert "kinfolk_useful_flops for NoneType is answered by policy again" in text and "exactly one may answer" in text


def test_two_candidates_of_one_name_name_both_distributions(environment):
    text = environment("toy", "toyarch", "same_candidates").ask(failure("kinfolk.compose('toy', 'toyarch')"))[1]
    assert "candidate toy.first is given by family toy (kinfolk-toy 1.0) and by policy same_candidates" in text


def test_refusals_of_all_plugins_are_kept(environment):
    why = environment("toy", "toyarch", "refuser").ask(
        "import kinfolk\n" + TOY + "answer = kinfolk.why(ToyRequest(rows=1, width=64), 'toyarch').to_dict()"
    )
    assert why["selected"] == "toy.second"
    assert [row["code"] for row in why["candidates"][0]["refusals"]] == ["acme.no"]


def test_a_policy_orders_survivors_and_may_not_drop_one(environment):
    ranked = TOY + "answer = composition.rank(None, ['a', 'b'])"
    assert environment("toy", "toyarch").ask(ranked) == ["a", "b"]
    assert environment("toy", "toyarch", "reverse").ask(ranked) == ["b", "a"]
    text = environment("toy", "toyarch", "dropper").ask(TOY + failure("composition.rank(None, ['a', 'b'])"))[1]
    assert "policy dropper (acme-dropper 1.0): kinfolk_rank returned 1 survivors" in text


@pytest.mark.parametrize(
    "policy, statement, expected",
    [
        (
            "raising",
            "composition.admit(None, None, None)",
            "kinfolk_admit_candidate raised KeyError: 'threshold' (acme_raising/plugin.py:4)",
        ),
        ("wordy", "composition.admit(None, None, None)", "kinfolk_admit_candidate returned 'no'"),
        ("forgetful", "composition.gate(Usage, None)", "kinfolk_gate_resources returned None"),
    ],
)
def test_a_hook_that_fails_is_an_error_with_plugin_hook_and_cause(environment, policy, statement, expected):
    usage = "class Usage:\n    scratch_bytes = scratch_ops = 0\n"
    name, text, plugin_error = environment("toy", "toyarch", policy).ask(TOY + usage + failure(statement))
    assert (name, plugin_error) == ("HookFault", True)
    assert text.startswith(f"policy {policy} (acme-{policy} 1.0): {expected}")


def test_a_failing_hook_is_a_row_on_the_command_line_and_no_traceback(environment):
    done = environment("toy", "toyarch", "raising").kinfolk("why", "toy", "--arch", "toyarch", "rows=3")
    assert done.returncode == 1
    assert "acme-raising" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_scratch_is_refused_by_core_through_the_same_hooks(environment):
    gate = """
class Usage:
    symbol, scratch_bytes, scratch_ops = "toy_kernel", {0}, {1}
answer = [refusal.to_dict() for refusal in composition.gate(Usage, ToySpec(width=64))]
"""
    toy = environment("toy", "toyarch")
    assert toy.ask(TOY + gate.format(0, 0)) == []
    rows = toy.ask(TOY + gate.format(4, 2))
    assert [(row["code"], row["value"], row["plugin"]) for row in rows] == [
        ("resources.scratch_bytes", 4, "kinfolk-core"),
        ("resources.scratch_ops", 2, "kinfolk-core"),
    ]


def test_a_forged_spec_is_refused_field_by_field(environment):
    forged = """
good = ToySpec(width=64)
bad = ToySpec(width=64)
object.__setattr__(bad, "width", 65)
answer = [[refusal.code for refusal in composition.validate_spec(spec)] for spec in (good, bad)]
"""
    assert environment("toy", "toyarch").ask(TOY + forged) == [[], ["spec.width.range"]]


def test_a_policy_digest_follows_every_file_of_its_package(environment, sites, tmp_path):
    import shutil

    from_policies = COMPOSE + "answer = compose('toy', 'toyarch').policy_digests['reverse']"
    base = environment("toy", "toyarch", "reverse")
    digest = base.ask(from_policies)
    assert base.ask(from_policies) == digest
    shutil.copytree(sites["reverse"], tmp_path / "edited")
    (tmp_path / "edited/acme_reverse/table.json").write_text('{"weight": 2}')
    edited = type(base)([*map(str, (sites["toy"], sites["toyarch"])), tmp_path / "edited"])
    assert edited.ask(from_policies) != digest
