"""Mutants of a module: one small change of its syntax tree each, written back as a change of its text."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from copy import copy
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
_BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
           ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
           ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift}  # fmt: skip
_TWINS = [("min", "max"), ("any", "all"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"),
          ("zeros", "ones"), ("zeros_like", "ones_like"), ("flatnonzero", "argsort"), ("left", "right")]  # fmt: skip
_NAMES = dict(_TWINS) | {b: a for a, b in _TWINS}
_TEXT = (ast.JoinedStr, ast.Import, ast.ImportFrom)
_ASIDE = {"annotation", "returns", "decorator_list"}


class Mutant(NamedTuple):
    """Replace the characters `start` to `end` of a file, on `line` to `last`, by `new`.

    `function` is the innermost one around it, `ordinal` counts the same changes of that function.
    """

    file: str
    function: str
    kind: str
    ordinal: int
    line: int
    last: int
    start: int
    end: int
    old: str
    new: str

    def rank(self, seed: int) -> str:
        """Return its place in the draw of a seed, and its name: edits elsewhere leave both as they are."""
        words = f"{seed}|{self.file}|{self.function}|{self.kind}|{self.old}|{self.new}|{self.ordinal}"
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    def apply(self, text: str) -> str:
        """Return the changed text of the file."""
        if text[self.start : self.end] != self.old:
            raise ValueError(f"{self.file} is not the one that the mutant was drawn from; expected {self.old!r}")
        return text[: self.start] + self.new + text[self.end :]


def find_mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of the bodies of a module's functions, in the order of its text."""
    lines = text.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]

    def offset(line: int, column: int) -> int:  # the tree counts bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = {}
    for function, node, kind, new in _mutate_functions(ast.parse(text), ""):
        start, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        more = "\n" * (node.end_lineno - node.lineno)  # what follows keeps its lines
        new = (f"({new}{more})" if isinstance(node, ast.expr) else new + more) if more else new
        one = Mutant(file, function, kind, 0, node.lineno, node.end_lineno, start, end, text[start:end], new)
        if new not in {one.old, f"({one.old})"}:
            found[start, end, new] = one
    same = Counter()
    for key in sorted(found):
        one = found[key]
        alike = one.function, one.kind, one.old, one.new
        found[key] = one._replace(ordinal=same[alike])
        same[alike] += 1
    return [found[key] for key in sorted(found)]


def _mutate_functions(node: ast.AST, within: str) -> Iterator[tuple[str, ast.AST, str, str]]:
    """Yield the changes of all functions below a node with their names, those of outer functions first."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            name = f"{within}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef):
            for found in chain.from_iterable(map(_walk, child.body)):
                yield name, *found
        yield from _mutate_functions(child, name)


def _walk(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield what replaces a node of the tree, and the kind of the change."""
    for change in (_operators, _conditions, _constants, _calls, _statements):
        yield from change(node)
    if isinstance(node, ast.Raise):
        return  # what is said with it is no mutant
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in _ASIDE and not isinstance(child, _TEXT):
                yield from _walk(child)


def _with(node: ast.AST, **fields: object) -> str:
    other = copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    text = ast.unparse(other)
    return f"({text})" if isinstance(node, ast.expr) else text


def _operators(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield node, "compare", _with(node, ops=[*node.ops[:i], _COMPARE[type(op)](), *node.ops[i + 1 :]])
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _BINARY:
        yield node, "operator", _with(node, op=_BINARY[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield node, "boolean", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield node, "boolean", _with(node, values=rest) if len(rest) > 1 else f"({ast.unparse(rest[0])})"
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node, "unary", f"({ast.unparse(node.operand)})"


def _conditions(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node.test, "condition", f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.comprehension):
        for one in node.ifs:
            yield one, "condition", "True"


def _constants(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield node, "constant", str(not node.value)
    elif isinstance(node.value, (int, float)):
        yield node, "constant", repr(node.value + 1)
        if node.value:
            yield node, "constant", f"({node.value - 1!r})"


def _calls(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _NAMES and isinstance(node.ctx, ast.Load):
            yield node, "twin", _with(node, **{"id" if isinstance(node, ast.Name) else "attr": _NAMES[name]})[1:-1]
    if isinstance(node, ast.Call):
        for i, (a, b) in enumerate(pairwise(node.args)):
            if not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred):
                yield node, "arguments", _with(node, args=[*node.args[:i], b, a, *node.args[i + 2 :]])[1:-1]


def _statements(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    kept = isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    if (isinstance(node, (ast.Expr, ast.AugAssign, ast.Raise)) and not says) or kept:
        yield node, "dropped", "pass"
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield node, "return", "return None"
    elif isinstance(node, (ast.Break, ast.Continue)):
        yield node, "loop", "continue" if isinstance(node, ast.Break) else "break"
