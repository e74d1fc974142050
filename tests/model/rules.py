"""The rules of the protocol that can be taken out of the model, to see what they are good for.

A rule is a plain string (an Enum's hash would be computed in Python, some hundred times a step).  The letter and number
in a comment is that of the hole in KIP-1176 as written that the rule closes; docs/testing.md tells how they are named.
"""

from typing import Final

# What a follower may append.
LINEAGE: Final = "an entry of an older leader passes the lineage test"
BATCH_EPOCHS: Final = "the lineage test asks for the epochs of the batches, not for that of the publisher"
HOLD_LATER_EPOCHS: Final = "an entry of a later epoch waits until that epoch is known"
HANDSHAKE: Final = "nothing is appended from the bucket before the leader of this epoch answered without divergence"
NO_GAP: Final = "the first batch appended begins at the log's end"
CHECK_AGAIN_AT_APPEND: Final = "epoch, role and handshake are looked at again under the lock"
LINEAGE_FROM_THE_LEADER: Final = "only the active leader of exactly this epoch answers for the lineage"  # H8
LINEAGE_AFTER_HANDSHAKE: Final = "the lineage is asked for after the handshake"  # H8
LINEAGE_OF_THIS_EPOCH: Final = "answers about the lineage die with the epoch"  # H8
FLOOR_ANSWER_IS_VOID: Final = "the leader does not vouch for epochs below its first"  # H4
RESET_EXCLUDES: Final = "while a log is being reset nothing is appended or fetched, and the range is read again"  # H5
INVALIDATION_OF_THIS_EPOCH: Final = "only the invalidation of the present epoch counts"  # H11

# High watermarks and in-sync replicas.
WATERMARK_WITHIN_THE_LOG: Final = "a follower's high watermark is at most its log end"
DIVERGING_FETCH_IS_NOT_COUNTED: Final = "a fetch that diverges moves nothing on the leader"  # H6
DIVERGING_ANSWER_ONLY_TRUNCATES: Final = "the high watermark of a diverging answer is not applied"  # H7
STALE_ANSWERS_ARE_DROPPED: Final = "an answer of an earlier epoch is dropped whole"  # H7
FOLLOWERS_UNKNOWN_AT_FIRST: Final = "a new leader knows no follower's log end"
JOIN_FROM_EPOCH_START: Final = "who joins the in-sync replicas has reached the start of the leader's epoch"
MAXIMAL_ISR: Final = "the high watermark waits for the members of now and of the proposal"
OLD_INCARNATION_IS_REFUSED: Final = "a fetch of a follower's earlier life is refused"  # H6

# The leader's epochs and slices.
NEW_EPOCH_AFTER_LOSS: Final = "a broker whose log got shorter leads only in an epoch that began after"  # H9
LAST_EPOCH_FROM_CACHE: Final = "the last fetched epoch is that of the epoch cache"  # H2
TRIM_EPOCH_CACHE: Final = "a new follower drops the epochs without a batch"  # H2
EPOCH_OF_THE_READ: Final = "a slice's epoch is taken before its bytes are read"  # H3
RESERVATION: Final = "slices of a reservation that was given back are not published"  # H14
PUBLISH_IN_ORDER: Final = "slices are published in the order of their offsets"
CHECK_AGAIN_AT_PUBLISH: Final = "leadership is looked at again before a slice is published"
RESUME_AT_WATERMARK: Final = "a new leader uploads from the high watermark on, not from its log end"  # H12
WHOLE_BATCHES: Final = "slices begin and end at batches"
CUT_AT_A_BATCH: Final = "a log cut within a batch ends at the batch's base, or at a later log start"
STRADDLE_KEEPS_LOG_START: Final = "an empty log that restarts at the batch around its start keeps that start"

# Without these nothing false is appended, but replicas may wait for ever.
PUT_BEFORE_PUBLISH: Final = "a slice is published when its object is there"
ENTRIES_ARE_NOT_REPLACED: Final = "an entry does not displace another that begins at the same offset"  # H10
ENTRIES_KEPT_TO_WATERMARK: Final = "entries above the high watermark are kept, even below the log end"  # H10
STRADDLE_INTO_AN_EMPTY_LOG: Final = "an empty log takes the batch around its start"
