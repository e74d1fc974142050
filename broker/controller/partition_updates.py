"""PartitionUpdates: partition changes against the state, with the rules that hold at this moment."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from uuid import UUID

from broker.controller.brokers_to_isrs import PartitionKey
from broker.controller.configuration_control_manager import ConfigurationControlManager
from broker.controller.controller_state import ControllerState
from broker.controller.partition_change_builder import (
    Election,
    PartitionChangeRules,
    PartitionTarget,
    build_partition_change,
)
from broker.metadata import directory_id
from broker.metadata.metadata_version import ELIGIBLE_LEADER_REPLICAS_FEATURE
from broker.metadata.partition_registration import PartitionRegistration
from broker.metadata.topics_image import TopicImage
from broker.schemas.cluster_metadata import MetadataRecord, PartitionChangeRecord


class PartitionUpdates:
    """What every part of the controller uses that changes partitions."""

    def __init__(self, state: ControllerState, configuration_control: ConfigurationControlManager) -> None:
        self._state = state
        self._configuration_control = configuration_control

    @property
    def is_elr_enabled(self) -> bool:
        return self._state.image.features.level(ELIGIBLE_LEADER_REPLICAS_FEATURE) > 0

    def rules(
        self,
        topic: TopicImage,
        partition: PartitionRegistration,
        *,
        added: int | None = None,
        removed: int | None = None,
        lost_directories: frozenset[UUID] = frozenset(),
    ) -> PartitionChangeRules:
        """`added` and `removed` are brokers whose change the same batch holds, so the image does not show it yet."""
        image = self._state.image

        def is_acceptable_leader(broker_id: int) -> bool:
            broker = image.brokers.get(broker_id)
            if broker is None or broker_id == removed:
                return False
            directory = partition.directory(broker_id)
            is_online = directory_id.is_online(directory, broker.directories) and directory not in lost_directories
            return is_online and (broker_id == added or broker.is_active)

        return PartitionChangeRules(
            is_acceptable_leader=is_acceptable_leader,
            metadata_version=image.features.metadata_version,
            min_isr=self._configuration_control.min_insync_replicas(topic.name),
            is_elr_enabled=self.is_elr_enabled,
            default_directory=self.default_directory,
        )

    def default_directory(self, broker_id: int) -> UUID:
        """Where a broker puts a new replica: known when it has one directory, else it will say (KIP-858)."""
        broker = self._state.image.brokers.get(broker_id)
        if broker is None or len(broker.directories) != 1:
            return directory_id.UNASSIGNED
        return broker.directories[0]

    def change(
        self, topic: TopicImage, index: int, target: PartitionTarget, rules: PartitionChangeRules | None = None
    ) -> PartitionChangeRecord | None:
        """The record for one partition; where the topic allows it, an election may be unclean."""
        partition = topic.partitions[index]
        if target.election is Election.ONLINE and self._configuration_control.is_unclean_leader_election_enabled(
            topic.name
        ):
            target = replace(target, election=Election.UNCLEAN)
        return build_partition_change(
            partition, topic.id, index, target, rules if rules is not None else self.rules(topic, partition)
        )

    def leader_and_isr_updates(
        self,
        keys: Iterable[PartitionKey],
        *,
        removed: int | None = None,
        added: int | None = None,
        unclean: int | None = None,
        lost_directories: frozenset[UUID] = frozenset(),
    ) -> Iterator[MetadataRecord]:
        """Elections after a change of one broker (generateLeaderAndIsrUpdates).

        `removed` leaves the ISR and leads no more; `unclean` leaves the ELR as well; `added` may lead.
        """
        for key in keys:
            topic = self._state.image.topics.by_id[key.topic_id]
            partition = topic.partitions[key.partition]
            target = PartitionTarget(
                isr=tuple(replica for replica in partition.isr if replica not in (removed, unclean)),
                unclean_shutdown_replicas=frozenset() if unclean is None else frozenset({unclean}),
            )
            gone = removed if removed is not None else unclean
            rules = self.rules(topic, partition, added=added, removed=gone, lost_directories=lost_directories)
            record = self.change(topic, key.partition, target, rules)
            if record is not None:
                yield record
