"""How far tiered storage (KIP-405) has what a bucket is to bring from leader to follower."""

from broker.common.identifiers import NO_OFFSET
from broker.log.unified_log import UnifiedLog


def highest_tiered_offset(log: UnifiedLog) -> int:
    """The last offset that tiered storage is known to have, inclusive; -1: nothing.

    What was copied before tiering was switched off is deleted there.
    """
    return log.highest_remote_offset if log.is_tiered else NO_OFFSET
