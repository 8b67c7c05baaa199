"""Definitions, imports and local variables: what each name is bound to, and all its uses."""

from __future__ import annotations

import libcst as cst
from libcst import metadata as meta

from renaming.source import Source
from renaming.table import RenameError


def find_bindings(source: Source) -> None:
    """Definitions, imports, and the uses of both."""
    for scope, assignment in source.assignments():
        if isinstance(assignment, meta.ImportAssignment):
            if isinstance(assignment.node, cst.ImportFrom):
                find_import_from(source, assignment, assignment.node)
            else:
                find_import(source, assignment, assignment.node)
        elif isinstance(scope, meta.GlobalScope) and isinstance(assignment, meta.Assignment):
            new = source.plan.names.get((source.module, assignment.name))
            for access in assignment.references:
                source.symbols[access.node] = (source.module, assignment.name)
            if new is not None:
                introduce(source, assignment, new)


def introduce(source: Source, assignment: meta.BaseAssignment, new: str) -> None:
    """Rename a binding with all its uses."""
    source.introduced[new] = assignment.name
    if isinstance(assignment, meta.Assignment) and not isinstance(assignment, meta.ImportAssignment):
        source.rename(assignment.node, new)
    for access in assignment.references:
        source.rename(access.node, new)


def find_import_from(source: Source, assignment: meta.ImportAssignment, node: cst.ImportFrom) -> None:
    """`from a.b import c [as d]`: another module, another name, or both."""
    home = home_of_import(source, node)
    if isinstance(node.names, cst.ImportStar) or not home:
        return
    for alias in node.names:
        bound = alias.evaluated_alias or alias.evaluated_name
        if bound != assignment.name:
            continue
        below = source.plan.tree.known(source.module, f"{home}.{alias.evaluated_name}")
        for access in assignment.references:
            if below:
                source.packages[access.node] = below
            else:
                source.symbols[access.node] = source.plan.tree.home_of(home, alias.evaluated_name)
        new = new_import(source, home, alias.evaluated_name)[1]
        if alias.asname is None and new != bound and not keeps_binding(source, below, new):
            introduce(source, assignment, new)
    made = split_import(source, node, home)
    if made is not None:
        source.imports[node] = made


def keeps_binding(source: Source, module: str, new: str) -> bool:
    """Whether a module keeps its name in this file (`import … as old`), because the new one is bound here already."""
    return bool(module) and any(each.name == new for _, each in source.assignments())


def home_of_import(source: Source, node: cst.ImportFrom) -> str:
    """The module of ours that a `from` import names, or ""."""
    name = "" if node.module is None else cst.Module([]).code_for_node(node.module)
    whole = source.plan.tree.absolute(source.module, name, len(node.relative))
    return source.plan.tree.known(source.module, whole)


def new_import(source: Source, home: str, name: str) -> tuple[str, str]:
    """Module and name to import in place of these."""
    plan = source.plan
    below = plan.tree.known(source.module, f"{home}.{name}")
    if below and below in plan.modules:
        parent, _, leaf = plan.modules[below].rpartition(".")
        return parent, leaf
    return plan.module(home), name if below else plan.name(home, name)


def split_import(source: Source, node: cst.ImportFrom, home: str) -> list[cst.ImportFrom] | None:
    """One import for each module that the names are in now; None = nothing changes."""
    assert not isinstance(node.names, cst.ImportStar)
    written = "" if node.module is None else cst.Module([]).code_for_node(node.module)
    groups: dict[str, list[cst.ImportAlias]] = {}
    changed = False
    for alias in node.names:
        target, name = new_import(source, home, alias.evaluated_name)
        changed |= (target, name) != (home, alias.evaluated_name)
        asname = None if alias.evaluated_alias == name else alias.asname
        below = source.plan.tree.known(source.module, f"{home}.{alias.evaluated_name}")
        if asname is None and name != alias.evaluated_name and keeps_binding(source, below, name):
            asname = cst.AsName(cst.Name(alias.evaluated_name))
        groups.setdefault(target, []).append(alias.with_changes(name=cst.Name(name), asname=asname))
    if not changed:
        return None
    made = []
    for target, aliases in groups.items():
        # Tests import each other by the name of the file: that stays so.
        plain = target if node.relative else short_name(home, written, target)
        last = [
            alias.with_changes(comma=cst.MaybeSentinel.DEFAULT) if alias is aliases[-1] and len(groups) > 1 else alias
            for alias in aliases
        ]
        made.append(node.with_changes(module=dotted_node(plain), relative=[], names=last))
    return made


def short_name(home: str, written: str, target: str) -> str:
    """`target` as the file would write it: without its first folders, if it wrote the old one so."""
    return target.removeprefix(home[: -len(written)]) if home.endswith("." + written) else target


def find_import(source: Source, assignment: meta.ImportAssignment, node: cst.CSTNode) -> None:
    """`import a.b.c [as d]`."""
    assert isinstance(node, cst.Import)
    for alias in node.names:
        name = alias.evaluated_name
        known = source.plan.tree.known(source.module, name)
        if (alias.evaluated_alias or name) != assignment.name or not known:
            continue
        new = source.plan.module(known)
        for access in assignment.references:
            source.packages[access.node] = known
            if new != known and alias.asname is None:
                source.changes[access.node] = lambda updated, new=new: dotted_node(new)
        if new != known:
            source.changes[alias.name] = lambda updated, new=new: dotted_node(new)


def dotted_node(name: str) -> cst.Name | cst.Attribute:
    """`a.b.c` as a node."""
    first, *rest = name.split(".")
    node: cst.Name | cst.Attribute = cst.Name(first)
    for part in rest:
        node = cst.Attribute(node, cst.Name(part))
    return node


def refuse_taken(source: Source) -> None:
    """A new name of a binding must not be bound in this file, unless what has it is renamed too."""
    for scope, assignment in source.assignments():
        name = assignment.name
        if isinstance(scope, meta.ClassScope):  # seen by nobody but the class's own body
            continue
        if name in source.introduced and source.introduced[name] != name and not is_leaving(source, assignment):
            rule = (
                f"{source.module}: {source.introduced[name]} cannot become {name}, which is bound in this file already"
            )
            raise RenameError(f"{rule}; rename that one first (kind local), or import with `as`")


def is_leaving(source: Source, assignment: meta.BaseAssignment) -> bool:
    """Whether a binding gets another name in this go, by its own line or as a local variable."""
    node = getattr(assignment, "node", None)
    if isinstance(node, cst.ImportFrom):
        return assignment.name in source.introduced.values()
    inner = node if isinstance(node, cst.Name) else getattr(node, "name", None)
    if inner in source.changes:
        return True
    rows = [row for row in source.plan.locals if row.old == assignment.name and row.covers(source.module)]
    return bool(rows) and not isinstance(assignment.scope, meta.GlobalScope)


def find_locals(source: Source) -> None:
    """Variables and parameters within functions."""
    rows = [row for row in source.plan.locals if any(row.covers(source.module, name) for name in functions_of(source))]
    for scope, assignment in list(source.assignments()):
        if isinstance(scope, meta.GlobalScope | meta.ClassScope | meta.BuiltinScope):
            continue
        if isinstance(assignment, meta.ImportAssignment) or not isinstance(assignment, meta.Assignment):
            continue
        for row in rows:
            if row.old == assignment.name and row.covers(source.module, function_of(scope)):
                if row.new in scope and row.new not in source.plan.names.values():
                    raise RenameError(
                        f"{source.module}: {row}: {row.new} is there already, in or around {function_of(scope)}"
                    )
                source.rename(assignment.node, row.new)
                for access in assignment.references:
                    source.rename(access.node, row.new)


def function_of(scope: meta.Scope) -> str:
    """The function, or Class.method, that a scope belongs to."""
    names = list[str]()
    inner: meta.Scope | None = scope
    while inner is not None and not isinstance(inner, meta.GlobalScope | meta.BuiltinScope):
        name = getattr(inner, "name", None)
        names.append(name) if isinstance(name, str) and not isinstance(inner, meta.ComprehensionScope) else None
        inner = inner.parent if inner.parent is not inner else None
    return ".".join(reversed(names))


def functions_of(source: Source) -> set[str]:
    """All functions of a file, and "" for a file without any."""
    return {"", *(function_of(scope) for scope in set(source.scopes.values()) if scope is not None)}
