"""A KV ledger whose cached blocks are found by the hash of the prompt they complete, and shared while in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from simulator.kvcache import PAGE_TOKENS, CachedPrefix, Holding, KvLedger


class HashLedger(KvLedger):
    """Blocks addressed by hash: a sequence's `key` is the tuple of ids of its prompt's hash blocks.

    A full hash block that a sequence computes is registered under its id and can be claimed by any later prompt that
    starts with the same ids, at the same time too. It is evictable once nobody uses it, least recently released first,
    and tails before heads within one release.

    Parameters
    ----------
    kv_tokens : int
        Capacity; whole pages of it count.
    hash_tokens : int
        Tokens of a hash block, a multiple of `page_tokens`.

    Limits
    ------
    A block that two sequences compute at once is held twice until they end. The last, partly filled block of a prompt
    and generated tokens are never found again. Admission counts a sequence's found blocks as needed, so at the brim a
    sequence may wait although its prefix is there.
    """

    def __init__(self, kv_tokens: int, hash_tokens: int, page_tokens: int = PAGE_TOKENS) -> None:
        if hash_tokens % page_tokens:
            raise ValueError(f"a hash block of {hash_tokens} tokens is no whole number of pages of {page_tokens}")
        super().__init__(kv_tokens, page_tokens)
        self.hash_tokens = hash_tokens
        self._pages = hash_tokens // page_tokens
        self._users: dict[int, int] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()

    def find(self, key: Hashable) -> CachedPrefix | None:
        """The leading blocks of the prompt `key` that are registered."""
        n = 0
        for one in _ids(key):
            if one not in self._users:
                break
            n += 1
        return CachedPrefix(key, 0, n * self._pages, n * self.hash_tokens, ()) if n else None

    def room_before(self, key: Hashable) -> int:
        """Blocks that can be handed out before a registered block of the prompt `key` is evicted."""
        mine = set(_ids(key))
        room = self.free_blocks
        for one in self._unused:
            if one in mine:
                break
            room += self._pages
        return room

    def own_blocks(self, tokens: int, hit_tokens: int) -> int:
        """Blocks that a sequence of `tokens` needs, found ones included."""
        return self.blocks(tokens)

    def claim(self, key: Hashable, hit_tokens: int) -> Holding:
        """Use the registered blocks of the first `hit_tokens` of the prompt `key`; a part of a block is copied."""
        ids = _ids(key)[: hit_tokens // self.hash_tokens]
        for one in ids:
            self._use(one)
        return Holding(key, 0, len(ids) * self._pages)

    def grow(self, holding: Holding, tokens: int) -> bool:
        """As `KvLedger.grow`; full prompt blocks that nobody has registered yet are registered."""
        if not super().grow(holding, tokens):
            return False
        ids = _ids(holding.key)
        n = holding.n_shared // self._pages
        full = min(len(ids), tokens // self.hash_tokens)
        while n < full and ids[n] not in self._users:
            self._users[ids[n]] = 1
            holding.n_blocks -= self._pages
            holding.n_shared += self._pages
            n += 1
        return True

    def release(self, holding: Holding, tokens: int, saved_tokens: tuple[int, ...] = ()) -> None:
        """Stop using the blocks of `holding`: registered ones stay until evicted, the others are free."""
        self.free_blocks += holding.n_blocks
        for one in reversed(_ids(holding.key)[: holding.n_shared // self._pages]):
            self._users[one] -= 1
            if not self._users[one]:
                self._unused[one] = None
                self.cached_blocks += self._pages
        holding.n_blocks = holding.n_shared = 0

    def _use(self, one: int) -> None:
        if not self._users[one]:
            del self._unused[one]
            self.cached_blocks -= self._pages
        self._users[one] += 1

    def _evict(self, n_blocks: int) -> None:
        while n_blocks > 0:
            one, _ = self._unused.popitem(last=False)
            del self._users[one]
            self.cached_blocks -= self._pages
            self.free_blocks += self._pages
            n_blocks -= self._pages


def _ids(key: Hashable) -> tuple[int, ...]:
    assert isinstance(key, tuple)
    return key
