"""Counting the errors in answers that handlers of raw frames encode themselves."""

from collections.abc import Iterable

from broker.common.errors import ErrorCode
from broker.server.response_slot import ResponseSlot


def count_errors(slot: ResponseSlot, errors: Iterable[ErrorCode]) -> None:
    """Count errors under the API that the slot's request came by; nothing for a slot that no dispatcher made."""
    route = slot.route
    if route is not None:
        for error in errors:
            route.metrics.count_error(error.name.upper())
