"""The hookspecs against DESIGN's list, and what a plugin must be to be one."""

import inspect
import types

import pytest

from kinfolk import hooks
from kinfolk.hooks import hookimpl
from kinfolk.plugins.validation import rejections

ARGUMENTS = {
    "validate_spec": "spec arch",
    "admit_candidate": "request candidate plan arch",
    "emit_ir": "spec arch",
    "gate_resources": "usage spec arch",
    "reference": "request inputs",
    "useful_flops": "request candidate inputs",
    "check_outputs": "request outputs expected",
    "candidates": "arch",
    "scenarios": "request",
    "mutation_requests": "arch",
    "rank": "request survivors",
    "arch": "",
    "request_type": "",
}


def plugin(**functions):
    """Return a module with the given functions."""
    module = types.ModuleType("example")
    vars(module).update(functions)
    return module


def marked(code, **options):
    """Return the function that one line of source defines, marked as a hook."""
    namespace = {}
    exec(f"def {code}: return ()", namespace)
    [function] = [value for value in namespace.values() if inspect.isfunction(value)]
    return hookimpl(**options)(function)


def test_the_hooks_and_their_arguments_are_those_of_the_contract():
    found = {
        name: " ".join(inspect.signature(value).parameters)
        for name, value in vars(hooks).items()
        if hasattr(value, "kinfolk_spec")
    }
    assert found == {f"kinfolk_{name}": arguments for name, arguments in ARGUMENTS.items()}
    assert (hooks.kinfolk_api, hooks.facts_schema) == (1, 1)


@pytest.mark.parametrize(
    "code, expected",
    [
        ("kinfolk_emit_ir(spec, arch)", None),
        ("kinfolk_emit_ir(arch)", None),
        ("kinfolk_emit_ir()", None),
        (
            "kinfolk_emit_ir(spec, architecture)",
            "kinfolk_emit_ir takes (spec, arch), the plugin's takes (spec, architecture): unknown: architecture",
        ),
        ("kinfolk_emit_ir(spec, arch=None)", "no defaults, keyword-only or variable arguments, found: arch"),
        ("kinfolk_emit_ir(spec, *, arch)", "found: arch"),
        ("kinfolk_emit_ir(*spec)", "found: spec"),
        ("kinfolk_emmit_ir(spec)", "kinfolk_emmit_ir is not a hook; the hooks are kinfolk_admit_candidate"),
        (
            "kinfolk_rank(request)",
            "kinfolk_rank is answered by a plugin of kind policy only, this is one of kind builtin",
        ),
    ],
)
def test_a_hook_is_taken_or_rejected_with_the_exact_difference(code, expected):
    found = rejections(plugin(**{code.partition("(")[0]: marked(code)}), "builtin")
    assert (found == ()) if expected is None else (len(found) == 1 and expected in found[0])


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper", "tryfirst", "trylast"])
def test_a_plugin_neither_wraps_nor_orders_others(option):
    [cause] = rejections(plugin(kinfolk_emit_ir=marked("kinfolk_emit_ir(spec)", **{option: True})), "builtin")
    assert f"uses {option}" in cause


def test_an_unmarked_hook_would_never_be_asked():
    [cause] = rejections(
        plugin(
            kinfolk_emit_ir=lambda spec: None, other=marked("kinfolk_scenarios(request)", specname="kinfolk_scenarios")
        ),
        "builtin",
    )
    assert "kinfolk_emit_ir is not marked" in cause


@pytest.mark.parametrize("kind", ["family", "arch"])
def test_every_missing_hook_is_told(kind):
    found = rejections(plugin(kinfolk_scenarios=marked("kinfolk_scenarios(request)")), kind)
    assert [cause.split(",")[0] for cause in found] == [
        f"it does not implement {hook}" for hook in hooks.REQUIRED[kind]
    ]


def test_a_class_and_an_empty_module_are_no_plugins():
    assert "is a class" in rejections(type("Toy", (), {}), "policy")[0]
    assert rejections(plugin(), "policy") == ("it implements no hook",)


def test_an_instance_is_a_plugin_and_hookspecs_it_imported_are_not_its_own():
    class Toy:
        from kinfolk.hooks import kinfolk_emit_ir

        @hookimpl
        def kinfolk_scenarios(self, request):
            return ()

        @property
        def kinfolk_broken(self):
            raise RuntimeError("a property is not called to find hooks")

    assert rejections(Toy(), "policy") == ()


def test_core_s_own_plugin_passes_the_same_check():
    from kinfolk.plugins import builtins

    assert rejections(builtins, "builtin") == ()
