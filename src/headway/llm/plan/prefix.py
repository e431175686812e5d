"""The prefix cache: which blocks hold the keys and values of which beginnings.

A block is known by a hash that chains: of the block before it, and of its own tokens. The chain begins at a root that
says whose model it is: version, adapter, salt. A hash is not believed: tokens, and the block before, are compared.
Only full blocks are cached.

Two sequences may compute the same block, each in one of its own: the last one of a prompt that is found whole is always
computed again. One of the two is cached and the other is its *twin*: what continues the twin continues the chain. There
are twins only while both are held.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

Hash = Callable[[bytes, tuple[int, ...]], bytes]

ROOT = -1
"""The block before the first."""


def chained(before: bytes, tokens: tuple[int, ...]) -> bytes:
    """128 bits of the block with these tokens, behind the one with that hash."""
    return blake2b(array("q", tokens).tobytes(), digest_size=16, key=before).digest()


def root(*names: str) -> bytes:
    """Of everything whose keys and values are alike only together: model version, adapter, salt."""
    return blake2b("\0".join(names).encode(), digest_size=16).digest()


class Held(NamedTuple):
    """A cached block. before: the number of the block it continues."""

    block: int
    hash: bytes
    before: int
    tokens: tuple[int, ...]
    root: bytes


class Found:
    """Cached blocks that a sequence begins with, as they were when last looked for. blocks: their numbers.
    moves: of content from a block to its twin, until then."""

    __slots__ = ("blocks", "held", "moves")

    def __init__(self) -> None:
        self.moves = 0
        self.blocks: list[int] = []
        self.held: list[Held] = []


class PrefixCache:
    """block_size: tokens of a block.  hits, asked: tokens.  collisions: hashes that were equal for other tokens.
    moved: how often content came to be cached in a twin."""

    __slots__ = (
        "_by_block",
        "_by_hash",
        "_following",
        "_hash",
        "_twin",
        "_twins",
        "asked",
        "block_size",
        "collisions",
        "hits",
        "moved",
    )

    def __init__(self, block_size: int, hash: Hash = chained) -> None:
        self.block_size = block_size
        self.hits = self.asked = self.collisions = self.moved = 0
        self._hash = hash
        self._by_hash: dict[bytes, Held] = {}
        self._by_block: dict[int, Held] = {}
        self._following: dict[int, dict[int, None]] = {}
        """Of each cached block those that continue it."""
        self._twin: dict[int, int] = {}
        """Of each twin the cached block."""
        self._twins: dict[int, dict[int, None]] = {}
        """Of each cached block that has any, its twins."""

    def __len__(self) -> int:
        return len(self._by_block)

    def __contains__(self, block: object) -> bool:
        return block in self._by_block

    def extend(self, root: bytes, hashes: list[bytes], tokens: list[int]) -> None:
        """Hashes of all full blocks of these tokens; the first of them are there already."""
        size = self.block_size
        before = hashes[-1] if hashes else root
        for start in range(len(hashes) * size, len(tokens) - size + 1, size):
            before = self._hash(before, tuple(tokens[start : start + size]))
            hashes.append(before)

    def find(self, root: bytes, hashes: list[bytes], tokens: list[int], limit: int) -> list[int]:
        """Numbers of the cached blocks that these tokens begin with, at most `limit`."""
        found = Found()
        self.look(root, hashes, tokens, limit, found)
        return found.blocks

    def look(self, root: bytes, hashes: list[bytes], tokens: list[int], limit: int, found: Found) -> None:
        """Bring up to date what was found of these tokens before. Takes as long as there is news: where a block is
        still cached so are all that it continues, since what is lost takes with it whatever continues it. Only where
        something has moved to a twin all is looked at again."""
        held, blocks = found.held, found.blocks
        if found.moves != self.moved:
            found.moves = self.moved
            held.clear()
            blocks.clear()
        while held and (len(held) > limit or self._by_block.get(held[-1].block) is not held[-1]):
            held.pop()
            blocks.pop()
        for number in range(len(held), min(limit, len(hashes))):
            following = self._following_block(root, hashes[number], tokens, number, blocks[-1] if blocks else ROOT)
            if following is None:
                break
            held.append(following)
            blocks.append(following.block)

    def _following_block(self, root: bytes, hash: bytes, tokens: list[int], number: int, before: int) -> Held | None:
        """The cached block with the tokens of that number, behind the one before."""
        held = self._by_hash.get(hash)
        if held is None:
            return None
        start = number * self.block_size
        same = held.before == before and held.root == root
        if not same or held.tokens != tuple(tokens[start : start + self.block_size]):
            self.collisions += 1
            return None
        return held

    def keep(self, root: bytes, hashes: list[bytes], tokens: list[int], blocks: list[int], number: int) -> bool:
        """The sequence's full block of that number has been computed. Whether it is cached from now on: not where
        another has the same content, whose twin it is then; nor where what it continues is not cached itself."""
        hash, block = hashes[number], blocks[number]
        before = blocks[number - 1] if number else ROOT
        before = self._twin.get(before, before)
        if number and before not in self._by_block:
            return False
        start = number * self.block_size
        held = Held(block, hash, before, tuple(tokens[start : start + self.block_size]), root)
        there = self._by_hash.get(hash)
        if there is not None:
            if there == held._replace(block=there.block) and there.block != block:
                self._twin[block] = there.block
                self._twins.setdefault(there.block, {})[block] = None
            return False
        self._put(held)
        if number:
            self._following.setdefault(before, {})[block] = None
        return True

    def twin(self, block: int) -> int | None:
        """The cached block that it is a twin of."""
        return self._twin.get(block)

    def keeps(self, block: int) -> bool:
        """Nobody holds it any more: whether its content stays in it. A twin has none of its own; and where it has a
        twin the content is from now on in that."""
        of = self._twin.pop(block, None)
        if of is not None:
            self._part(of, block)
        elif block in self._by_block:
            if block not in self._twins:
                return True
            self.move(block, next(iter(self._twins[block])))
        return False

    def move(self, block: int, twin: int) -> None:
        """What is cached in a block is cached in its twin instead."""
        self.moved += 1
        held = self._by_block.pop(block)
        self._put(held._replace(block=twin))
        del self._twin[twin]
        self._part(block, twin)
        twins = self._twins.pop(block, None)
        if twins:
            self._twins[twin] = twins
            for other in twins:
                self._twin[other] = twin
        if held.before != ROOT:
            following = self._following[held.before]
            del following[block]
            following[twin] = None
        continued = self._following.pop(block, None)
        if continued:
            self._following[twin] = continued
            for other in continued:
                self._put(self._by_block[other]._replace(before=twin))

    def _put(self, held: Held) -> None:
        self._by_hash[held.hash] = self._by_block[held.block] = held

    def _part(self, block: int, twin: int) -> None:
        twins = self._twins[block]
        del twins[twin]
        if not twins:
            del self._twins[block]

    def forget(self, block: int) -> list[int]:
        """Its content is lost, and with it that of the blocks that continue it: nobody could find them any more. All
        of them, itself first."""
        lost = [block]
        before = self._by_block[block].before
        if before != ROOT:
            following = self._following[before]
            del following[block]
            if not following:
                del self._following[before]
        for each in lost:
            del self._by_hash[self._by_block.pop(each).hash]
            lost += self._following.pop(each, ())
        return lost

    def twins(self) -> list[tuple[int, int]]:
        """Each with the cached block that it is a twin of (for checks)."""
        return list(self._twin.items())

    def held(self) -> list[Held]:
        """All that is cached (for checks, and for whoever places requests)."""
        return list(self._by_block.values())

    def knows(self, hash: bytes) -> bool:
        return hash in self._by_hash
