"""DiskMetrics: how full the volume is that this process writes to."""

from collections.abc import Callable, Iterable
from typing import Protocol

from broker.metrics.registry import MetricsRegistry, Sample


class MeasuredVolume(Protocol):
    """What a scrape reads of `shutil.disk_usage`; bytes."""

    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...


class DiskMetrics:
    """Nothing is counted here: `observe` names who tells of the volume."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._volume: Callable[[], MeasuredVolume] | None = None
        self._gauge(
            "broker_disk_free_bytes",
            "Bytes this process may still write to the volume of log.dir.",
            lambda volume: volume.free,
            "At 0 producers get KAFKA_STORAGE_ERROR: grow the volume, or shorten retention. Tiered topics whose bucket "
            "is away keep everything.",
        )
        self._gauge("broker_disk_size_bytes", "Bytes of that volume.", lambda volume: volume.total)

    def observe(self, volume: Callable[[], MeasuredVolume]) -> None:
        """`volume` raises OSError when it cannot be asked."""
        self._volume = volume

    def _gauge(
        self, name: str, documentation: str, value: Callable[[MeasuredVolume], int], action: str | None = None
    ) -> None:
        def read() -> Iterable[Sample]:
            try:
                if self._volume is not None:
                    yield (), value(self._volume())
            except OSError:
                return  # no value: it is not known

        self._registry.collected(name, "gauge", documentation, (), read, action=action)
