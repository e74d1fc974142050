"""CleanedTransactions: what a pass has seen of transactions, in log order (Kafka: CleanedTransactionMetadata).

It tells which batches belong to aborted transactions, which markers have nothing left to mark, and what the
transaction index of the compacted segment must say.
"""

import heapq
from collections.abc import Iterable

from broker.log.producer_state_manager import parse_marker
from broker.log.transaction_index import AbortedTransaction
from broker.records.record_batch import RecordBatch


class _Aborted:
    """An aborted transaction whose marker has not come yet."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """Fed with every batch of one pass, in order; a batch that is about to be dropped was still there for it."""

    __slots__ = ("_aborted", "_ahead", "_committed", "_index")

    def __init__(self) -> None:
        self._ahead: list[tuple[int, AbortedTransaction]] = []  # a heap, by first offset
        self._aborted: dict[int, _Aborted] = {}  # by producer
        self._committed: dict[int, None] = {}  # producers with batches of a transaction that was not aborted
        self._index: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """What the transaction indexes say of the batches that come; the same transaction may come again."""
        for transaction in transactions:
            heapq.heappush(self._ahead, (transaction.first_offset, transaction))

    def saw_batch(self, batch: RecordBatch) -> bool:
        """A data batch; returns whether its transaction was aborted."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        aborted = self._aborted.get(batch.producer_id)
        if aborted is None:
            self._committed[batch.producer_id] = None
            return False
        aborted.has_batches = True
        return True

    def saw_control(self, batch: RecordBatch) -> bool:
        """A control batch; returns whether it is of no use any more, as nothing of its transaction came before it."""
        self._begin_up_to(batch.last_offset)
        if batch.record_count == 0:
            return True
        marker = parse_marker(batch)
        if marker is None:
            return False  # another kind of control record
        if marker.is_commit:
            has_batches = batch.producer_id in self._committed
            self._committed.pop(batch.producer_id, None)
            return not has_batches
        aborted = self._aborted.pop(batch.producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        # Its own offset, not what an index said, which has no CRC: they must increase.
        self._index.append(aborted.transaction._replace(last_offset=batch.last_offset))
        return False

    def take_index(self) -> list[AbortedTransaction]:
        """The transactions whose markers came since the last call, and still have something to mark."""
        index, self._index = self._index, []
        return index

    def _begin_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._ahead)
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
