"""The order of a function's blocks: each after its predecessors, back edges aside, and every loop contiguous."""

from __future__ import annotations

from tlxc.emulator.errors import EmulatorError
from tlxc.emulator.module import Block


def block_order(blocks: dict[str, Block]) -> list[Block]:
    """The blocks that can be reached from the first one, ordered."""
    entry = next(iter(blocks))
    successors = {name: list(block.targets) for name, block in blocks.items()}
    reachable, todo = {entry}, [entry]
    while todo:
        for target in successors[todo.pop()]:
            if target not in blocks:
                raise EmulatorError(f"The block '%{target}' does not exist.")
            if target not in reachable:
                reachable.add(target)
                todo.append(target)
    return [blocks[name] for name in _order(entry, reachable, successors)]


def _order(entry: str, nodes: set[str], successors: dict[str, list[str]]) -> list[str]:
    """Topological order of strongly connected components; inside each loop, the same with its header's back edges
    cut."""
    result = []
    for component in reversed(_components(entry, nodes, successors)):
        if len(component) == 1:
            result.append(component[0])
            continue
        inside = set(component)
        header = next(name for name in component if name == entry or _entered(name, inside, nodes, successors))
        cut = {name: [t for t in successors[name] if t in inside and t != header] for name in component}
        result += _order(header, inside, cut)
    return result


def _entered(name: str, inside: set[str], nodes: set[str], successors: dict[str, list[str]]) -> bool:
    """Whether some block outside of the component branches to `name`."""
    return any(name in successors[other] for other in nodes - inside)


def _components(entry: str, nodes: set[str], successors: dict[str, list[str]]) -> list[list[str]]:
    """Tarjan's algorithm without recursion: components in reverse topological order, each with its first-visited block
    first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    result: list[list[str]] = []

    def enter(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        work.append((name, 0))

    for root in [entry, *sorted(nodes)]:
        if root in index:
            continue
        work: list[tuple[str, int]] = []
        enter(root)
        while work:
            name, at = work.pop()
            targets = [t for t in successors[name] if t in nodes]
            if at < len(targets):
                work.append((name, at + 1))
                target = targets[at]
                if target not in index:
                    enter(target)
                elif target in on_stack:
                    low[name] = min(low[name], index[target])
                continue
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[name])
            if low[name] == index[name]:
                start = stack.index(name)
                result.append(stack[start:])
                on_stack.difference_update(stack[start:])
                del stack[start:]
    return result
