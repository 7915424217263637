"""A map that forgets what was not used for longest once it is full. Threads may share one."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruMap(Generic[K, V]):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._map: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._map.get(key)
            if value is not None:
                self._map.move_to_end(key)
            return value

    def set(self, key: K, value: V) -> None:
        with self._lock:
            self._map[key] = value
            self._map.move_to_end(key)
            if len(self._map) > self._limit:
                self._map.popitem(last=False)

    def delete(self, key: K) -> None:
        with self._lock:
            self._map.pop(key, None)

    def __len__(self) -> int:
        return len(self._map)
