"""Ranks that wait for each other: the groups of a graph that wait for no other rank."""

from collections.abc import Mapping


def sink_groups(awaited: Mapping[int, set[int]]) -> list[list[int]]:
    """Ranks that wait, directly or not, only for each other, and for which a rank outside or inside of the group waits, in order.

    The strongly connected components without an edge to another one, by Tarjan's algorithm without recursion.
    """
    nodes = sorted(set(awaited).union(*awaited.values()))
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    path: list[int] = []
    count = 0
    for root in nodes:
        if root in order:
            continue
        work = [(root, iter(sorted(awaited.get(root, ()))))]
        order[root] = low[root] = len(order)
        path.append(root)
        while work:
            node, edges = work[-1]
            target = next(edges, None)
            if target is not None:
                if target not in order:
                    order[target] = low[target] = len(order)
                    path.append(target)
                    work.append((target, iter(sorted(awaited.get(target, ())))))
                elif target not in component:
                    low[node] = min(low[node], order[target])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                while True:
                    member = path.pop()
                    component[member] = count
                    if member == node:
                        break
                count += 1
    leaving = {component[node] for node, targets in awaited.items() if any(component[target] != component[node] for target in targets)}
    groups: dict[int, list[int]] = {}
    for node in nodes:
        if component[node] not in leaving:
            groups.setdefault(component[node], []).append(node)
    return sorted(groups.values())
