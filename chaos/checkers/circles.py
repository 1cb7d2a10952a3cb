"""Circles in a graph: names that can all be reached from each other.

After Tarjan, without recursion: a run has more transactions than Python has frames.

Not here: what the edges mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

Graph = Mapping[str, Collection[str]]


def circles_in(graph: Graph) -> list[list[str]]:
    """Return the largest sets of two names or more in which each leads to all others, in order."""
    search = _Search(graph)
    for name in sorted(graph):
        search.visit(name)
    return sorted(sorted(one) for one in search.found if len(one) > 1)


class _Search:
    """One walk through a graph; every name is visited once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._number = dict[str, int]()
        self._lowest = dict[str, int]()
        self._waiting = list[str]()
        self._is_waiting = set[str]()
        self.found = list[list[str]]()

    def visit(self, first: str) -> None:
        if first in self._number:
            return
        path = [self._enter(first)]
        while path:
            name, edges = path[-1]
            for after in edges:
                if after not in self._number:
                    path.append(self._enter(after))
                    break
                if after in self._is_waiting:
                    self._lowest[name] = min(self._lowest[name], self._number[after])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    self._lowest[above] = min(self._lowest[above], self._lowest[name])
                if self._lowest[name] == self._number[name]:
                    self._leave(name)

    def _enter(self, name: str) -> tuple[str, Iterator[str]]:
        self._number[name] = self._lowest[name] = len(self._number)
        self._waiting.append(name)
        self._is_waiting.add(name)
        return name, iter(sorted(self._graph.get(name, ())))

    def _leave(self, name: str) -> None:
        circle = list[str]()
        while not circle or circle[-1] != name:
            circle.append(self._waiting.pop())
            self._is_waiting.discard(circle[-1])
        self.found.append(circle)
