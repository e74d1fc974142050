"""ShardState: the life of one coordinator shard, as a table."""

from enum import Enum
from typing import Final


class ShardState(Enum):
    """Kafka's CoordinatorRuntime.CoordinatorState; the value is the `state` label of num-partitions."""

    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


VALID_PREVIOUS: Final = {
    ShardState.INITIAL: frozenset[ShardState](),
    ShardState.LOADING: frozenset({ShardState.INITIAL, ShardState.FAILED}),
    ShardState.ACTIVE: frozenset({ShardState.LOADING}),
    ShardState.FAILED: frozenset({ShardState.LOADING, ShardState.ACTIVE}),
    ShardState.CLOSED: frozenset({ShardState.INITIAL, ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED}),
}
