"""What an emitter is written with, read from the sources: the portable ops, and the parts of the tile toolkit."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import kinfolk.ir.ops
import kinfolk.tile
import kinfolk.tile.attention
from kinfolk.ir.op import OpDef

PACKAGES = {
    kinfolk.ir.ops: (
        "What a kernel is made of. `name` is called while a kernel is built; what it takes stands in order, values of "
        "the kernel first, and what ends in `=` is known by then."
    ),
    kinfolk.tile: "The tile toolkit: what kernels share.",
    kinfolk.tile.attention: "Of the tile toolkit, what kernels share that attend to tiles of keys and values.",
}
NOT_FOR_EMITTERS = {
    "kinfolk.ir.ops.declare": None,
    "kinfolk.ir.ops.convert": {"widen_float", "narrow_float"},
    "kinfolk.ir.ops.memory": {"alignment_of", "buffer_address", "access_bytes"},
    "kinfolk.ir.ops.vector": {"literal"},
}
"""What modules hold for lowerings and meanings, by name; None for a module that holds nothing else."""
TITLE = "# What emitters are written with\n\nOne line each, in the words of the sources; the rest stands there.\n"


def page() -> str:
    """Return the body of the page, as Markdown."""
    return "\n".join([TITLE, *(line for package, about in PACKAGES.items() for line in _package(package, about))])


def _package(package: ModuleType, about: str) -> Iterator[str]:
    yield f"## {package.__name__}\n\n{about}\n"
    for found in pkgutil.iter_modules(package.__path__):
        if found.ispkg:
            continue
        name = f"{package.__name__}.{found.name}"
        hidden = NOT_FOR_EMITTERS.get(name, set[str]())
        if hidden is None:
            continue
        module = importlib.import_module(name)
        rows = [row for row in _rows(module) if row[0] not in hidden]
        if rows:
            yield f"### {found.name}\n\n{_paragraph(inspect.getdoc(module) or '')}\n"
            yield "| name | takes | is |\n| --- | --- | --- |"
            yield "".join(f"| `{name}` | {takes} | {told} |\n" for name, takes, told in rows)


def _rows(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yield name, what it takes and its first paragraph, in the order of the source."""
    told = dict(_told(module))
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if name.startswith("_") or name not in told or not (own or isinstance(value, OpDef)):
            continue
        if isinstance(value, OpDef):
            if name.isupper():  # a function of that name in small letters stands for it
                continue
            given = [f"`{each}`" for each in value.operands]
            given += [f"{each.name}=" for each in value.attributes]
            yield name, ", ".join(given).replace("|", "\\|"), told[name]
        elif inspect.isfunction(value) or inspect.isclass(value):
            yield name, "" if inspect.isclass(value) else _parameters(value), told[name]


def _parameters(function: object) -> str:
    names = inspect.signature(function).parameters.values()  # pyright: ignore[reportArgumentType]
    return ", ".join(f"{each.name}=" if each.kind is each.KEYWORD_ONLY else f"`{each.name}`" for each in names)


def _told(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the name and the first paragraph of every public definition; an assignment's stands behind it."""
    assert module.__file__
    with open(module.__file__, encoding="utf-8") as source:
        body = ast.parse(source.read()).body
    for node, behind in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, _paragraph(ast.get_docstring(node) or "")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = behind.value.value if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant) else ""
            yield node.targets[0].id, _paragraph(str(text))


def _paragraph(text: str) -> str:
    """Return the first paragraph of a docstring, on one line, as a cell of a table."""
    first = " ".join(text.split("\n\n")[0].split())
    return first.replace("|", "\\|")
