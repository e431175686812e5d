"""Memory of a pretended device: what each place of each block holds, down to every token that it depends on.

Keys and values of a position depend on all tokens up to it, and on whose model it is. Here they are a number that
stands for just that: two positions have the same number where they may be shared, and only there. A row that runs is
checked to find, in its block table, what was computed of all positions before its own.
"""

from __future__ import annotations

GARBAGE = -1
"""What a row leaves behind whose result is void: on a device its numbers would be some or other."""
NOTHING = -2


class PlanViolation(AssertionError):
    """The planner has broken a promise."""


class Device:
    """memory: of all blocks, place by place."""

    __slots__ = ("_ids", "block_size", "memory")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.memory: list[int] = []
        self._ids: dict[tuple[int | str, int], int] = {}

    def values(self, root: str, tokens: list[int], known: list[int]) -> list[int]:
        """Keys and values of all positions of these tokens; of the first of them they are known."""
        ids = self._ids
        before: int | str = known[-1] if known else root
        for token in tokens[len(known) :]:
            before = ids.setdefault((before, token), len(ids))
            known.append(before)
        return known

    def run(self, table: list[int], start: int, values: list[int]) -> None:
        """Compute positions from `start` on to the last of the values; what comes before them is in the blocks.
        PlanViolation where it is not."""
        size = self.block_size
        for number in range(-(-start // size)):
            first = number * size
            at = table[number] * size
            wanted = values[first : min(first + size, start)]
            found = self.memory[at : at + len(wanted)]
            if found != wanted:
                raise PlanViolation(f"block {table[number]}, number {number}, holds {found} and not {wanted}")
        self.write(table, start, values[start:])

    def write(self, table: list[int], start: int, values: list[int]) -> None:
        size, memory = self.block_size, self.memory
        for position, value in enumerate(values, start):
            at = table[position // size] * size + position % size
            while at >= len(memory):
                memory.extend([NOTHING] * size * 64)
            memory[at] = value

    def spoil(self, table: list[int], start: int, count: int) -> None:
        """A row runs whose result is void."""
        self.write(table, start, [GARBAGE] * count)
