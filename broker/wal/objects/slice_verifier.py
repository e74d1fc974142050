"""Whether bytes from a bucket are the slice that its metadata promises.  Nothing else may be appended."""

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError
from broker.records.record_batch import RecordBatch, batches
from broker.wal.objects.wal_entry import WalEntry
from broker.wal.objects.wal_slice import leader_epochs_of


class CorruptSliceError(CorruptMessageError):
    """The bytes are not what the metadata says: too few, flipped, or of another slice."""


def verify_slice(entry: WalEntry, data: Buffer) -> tuple[RecordBatch, ...]:
    """The batches of the slice, each with its CRC checked.  CorruptSliceError.

    The epochs in the bytes must be exactly those announced: which batches are valid was decided by them.
    """
    if len(data) != entry.size:
        raise _corrupt(entry, f"{len(data)} bytes instead of {entry.size}")
    checksum = crc32c(data)
    if checksum != entry.crc32c:
        raise _corrupt(entry, f"CRC {checksum:#010x} instead of {entry.crc32c:#010x}")
    try:
        found = tuple(batches(data))
        for batch in found:
            batch.ensure_valid()
        epochs = leader_epochs_of(found, entry.leader_epoch)
    except CorruptMessageError as error:
        raise _corrupt(entry, str(error)) from error
    if sum(batch.size_bytes for batch in found) != entry.size:
        raise _corrupt(entry, "it ends within a batch")
    if (found[0].base_offset, found[-1].last_offset) != (entry.start_offset, entry.end_offset):
        raise _corrupt(entry, f"it holds offsets {found[0].base_offset} to {found[-1].last_offset}")
    if epochs != entry.leader_epochs:
        raise _corrupt(entry, f"its batches are of the epochs {epochs}, not {entry.leader_epochs}")
    return found


def _corrupt(entry: WalEntry, reason: str) -> CorruptSliceError:
    return CorruptSliceError(
        f"Slice {entry.start_offset} to {entry.end_offset} of {entry.partition.topic_partition} "
        f"in {entry.object_key} is corrupt: {reason}"
    )
