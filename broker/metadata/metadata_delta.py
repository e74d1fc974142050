"""MetadataDelta: metadata records replayed onto an image."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.configs_image import ConfigResource, ConfigResourceType, ConfigsImage
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import (
    FeaturesImage,
    MetadataImage,
    ProducerIdsImage,
    QuotaEntity,
)
from broker.metadata.overlay import Overlay
from broker.metadata.topics_delta import TopicsDelta
from broker.schemas import cluster_metadata as records


class MetadataDelta:
    """Changes since `image`, as records tell them; `apply` gives the next image, the old one stays as it was.

    Deltas are made and read by one owner and thrown away with the next batch.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.topics_delta = TopicsDelta(image.topics)
        self._features: Overlay[str, int] = Overlay(image.features.finalized)
        self._zk_migration_state = image.features.zk_migration_state
        self._brokers = Overlay(image.brokers)
        self._controllers = Overlay(image.controllers)
        self._configs = Overlay(image.configs.by_resource)
        self._client_quotas = Overlay(image.client_quotas)
        self._producer_ids = image.producer_ids
        self._acls = Overlay(image.acls)
        self._scram_credentials = Overlay(image.scram_credentials)
        self._delegation_tokens = Overlay(image.delegation_tokens)

    @classmethod
    def between(cls, old: MetadataImage, new: MetadataImage) -> "MetadataDelta":
        """The difference of two images: what a snapshot changes, and nothing else."""
        delta = cls(old)
        delta.topics_delta = TopicsDelta.between(old.topics, new.topics)
        delta._features = Overlay.between(old.features.finalized, new.features.finalized)
        delta._zk_migration_state = new.features.zk_migration_state
        delta._brokers = Overlay.between(old.brokers, new.brokers)
        delta._controllers = Overlay.between(old.controllers, new.controllers)
        delta._configs = Overlay.between(old.configs.by_resource, new.configs.by_resource)
        delta._client_quotas = Overlay.between(old.client_quotas, new.client_quotas)
        delta._producer_ids = new.producer_ids
        delta._acls = Overlay.between(old.acls, new.acls)
        delta._scram_credentials = Overlay.between(old.scram_credentials, new.scram_credentials)
        delta._delegation_tokens = Overlay.between(old.delegation_tokens, new.delegation_tokens)
        return delta

    @property
    def changed_features(self) -> Mapping[str, int | None]:
        """New levels by feature; None for one that was removed."""
        return self._features.changes

    @property
    def changed_brokers(self) -> Mapping[int, BrokerRegistration | None]:
        """New registrations by broker id; None for one that was unregistered."""
        return self._brokers.changes

    @property
    def changed_configs(self) -> Mapping[ConfigResource, Mapping[str, str] | None]:
        """All dynamic properties of each changed resource; None when none is left."""
        return self._configs.changes

    @property
    def changed_client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float] | None]:
        return self._client_quotas.changes

    @property
    def changed_acls(self) -> Mapping[Any, records.AccessControlEntryRecord | None]:
        return self._acls.changes

    def replay(self, record: records.MetadataRecord) -> None:
        """Apply one record.  MetadataFault when it cannot follow the records before it."""
        replay = _REPLAYS.get(type(record))
        if replay is None:
            raise MetadataFault(f"{type(record).__name__} is not a record of the metadata image")
        replay(self, record)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """The image that ends with the record at `offset`, written in leader epoch `epoch`."""
        features = self.image.features
        if self._features.changes or self._zk_migration_state != features.zk_migration_state:
            features = FeaturesImage(self._features.apply(), self._zk_migration_state)
        configs = ConfigsImage(self._configs.apply()) if self._configs.changes else self.image.configs
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            features=features,
            brokers=self._brokers.apply(),
            controllers=self._controllers.apply(),
            topics=self.topics_delta.apply(),
            configs=configs,
            client_quotas=self._client_quotas.apply(),
            producer_ids=self._producer_ids,
            acls=self._acls.apply(),
            scram_credentials=self._scram_credentials.apply(),
            delegation_tokens=self._delegation_tokens.apply(),
        )

    def _replay_feature_level(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._features.remove(record.name)
        else:
            self._features.set(record.name, record.feature_level)

    def _replay_zk_migration_state(self, record: records.ZkMigrationStateRecord) -> None:
        self._zk_migration_state = record.zk_migration_state

    def _replay_register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self._brokers.set(record.broker_id, BrokerRegistration.from_record(record))

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        registration = self._brokers.get(broker_id)
        if registration is None or registration.epoch != epoch:
            found = "not registered" if registration is None else f"registered with epoch {registration.epoch}"
            raise MetadataFault(f"a record names broker {broker_id} with epoch {epoch}, which is {found}")
        return registration

    def _replay_unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        self._brokers.remove(record.broker_id)

    def _replay_broker_registration_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        registration = self._registered(record.broker_id, record.broker_epoch)
        self._brokers.set(record.broker_id, registration.merge(record))

    def _replay_fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._fence(record.id, record.epoch, fenced=1)

    def _replay_unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._fence(record.id, record.epoch, fenced=-1)

    def _fence(self, broker_id: int, epoch: int, fenced: int) -> None:
        change = records.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced)
        self._replay_broker_registration_change(change)

    def _replay_register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._controllers.set(record.controller_id, record)

    def _replay_topic(self, record: records.TopicRecord) -> None:
        self.topics_delta.replay_topic(record)

    def _replay_partition(self, record: records.PartitionRecord) -> None:
        self.topics_delta.replay_partition(record)

    def _replay_partition_change(self, record: records.PartitionChangeRecord) -> None:
        self.topics_delta.replay_partition_change(record)

    def _replay_clear_elr(self, record: records.ClearElrRecord) -> None:
        self.topics_delta.replay_clear_elr(record)

    def _replay_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self.topics_delta.replay_remove_topic(record)
        self._configs.remove(ConfigResource(ConfigResourceType.TOPIC, name))

    def _replay_config(self, record: records.ConfigRecord) -> None:
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        properties = dict(self._configs.get(resource) or {})
        if record.value is None:
            properties.pop(record.name, None)
        else:
            properties[record.name] = record.value
        if properties:
            self._configs.set(resource, properties)
        else:
            self._configs.remove(resource)

    def _replay_client_quota(self, record: records.ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple((part.entity_type, part.entity_name) for part in record.entity)
        quotas = dict(self._client_quotas.get(entity) or {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._client_quotas.set(entity, quotas)
        else:
            self._client_quotas.remove(entity)

    def _replay_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self._producer_ids = ProducerIdsImage(record.next_producer_id)

    def _replay_access_control_entry(self, record: records.AccessControlEntryRecord) -> None:
        self._acls.set(record.id, record)

    def _replay_remove_access_control_entry(self, record: records.RemoveAccessControlEntryRecord) -> None:
        self._acls.remove(record.id)

    def _replay_user_scram_credential(self, record: records.UserScramCredentialRecord) -> None:
        self._scram_credentials.set((record.name, record.mechanism), record)

    def _replay_remove_user_scram_credential(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._scram_credentials.remove((record.name, record.mechanism))

    def _replay_delegation_token(self, record: records.DelegationTokenRecord) -> None:
        self._delegation_tokens.set(record.token_id, record)

    def _replay_remove_delegation_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        self._delegation_tokens.remove(record.token_id)

    def _replay_no_op(self, record: records.NoOpRecord) -> None:
        """It only moves the offset."""


# Transaction markers are missing on purpose: MetadataLoader buffers between them and never replays them.
_REPLAYS: Final[Mapping[type, Callable[[MetadataDelta, Any], None]]] = {
    records.FeatureLevelRecord: MetadataDelta._replay_feature_level,
    records.ZkMigrationStateRecord: MetadataDelta._replay_zk_migration_state,
    records.RegisterBrokerRecord: MetadataDelta._replay_register_broker,
    records.UnregisterBrokerRecord: MetadataDelta._replay_unregister_broker,
    records.BrokerRegistrationChangeRecord: MetadataDelta._replay_broker_registration_change,
    records.FenceBrokerRecord: MetadataDelta._replay_fence_broker,
    records.UnfenceBrokerRecord: MetadataDelta._replay_unfence_broker,
    records.RegisterControllerRecord: MetadataDelta._replay_register_controller,
    records.TopicRecord: MetadataDelta._replay_topic,
    records.PartitionRecord: MetadataDelta._replay_partition,
    records.PartitionChangeRecord: MetadataDelta._replay_partition_change,
    records.ClearElrRecord: MetadataDelta._replay_clear_elr,
    records.RemoveTopicRecord: MetadataDelta._replay_remove_topic,
    records.ConfigRecord: MetadataDelta._replay_config,
    records.ClientQuotaRecord: MetadataDelta._replay_client_quota,
    records.ProducerIdsRecord: MetadataDelta._replay_producer_ids,
    records.AccessControlEntryRecord: MetadataDelta._replay_access_control_entry,
    records.RemoveAccessControlEntryRecord: MetadataDelta._replay_remove_access_control_entry,
    records.UserScramCredentialRecord: MetadataDelta._replay_user_scram_credential,
    records.RemoveUserScramCredentialRecord: MetadataDelta._replay_remove_user_scram_credential,
    records.DelegationTokenRecord: MetadataDelta._replay_delegation_token,
    records.RemoveDelegationTokenRecord: MetadataDelta._replay_remove_delegation_token,
    records.NoOpRecord: MetadataDelta._replay_no_op,
}
