"""For every setting, a test in which a value of its own changes what the broker does.

`tests/architecture/test_settings_are_proven.py` sees to it that the lists are whole and the tests exist.
"""

from typing import Final

_UNIT = "tests/unit"
_CONFIG = f"{_UNIT}/config"
_SERVER = f"{_UNIT}/server"
_GROUP = f"{_UNIT}/coordinator/group"
_CONTEXT = f"{_UNIT}/coordinator/test_coordinator_context.py"
_CONTROLLER = f"{_UNIT}/controller"
_LOG = f"{_UNIT}/log"
_CLEANER = f"{_LOG}/cleaner/test_log_cleaner.py"

_A_NODE = "tests/interop/test_node_settings.py::test_a_node_is_what_its_settings_say"
_LISTENERS = f"{_CONFIG}/test_listener_rules.py"
_QUORUM_TIMES = f"{_UNIT}/test_broker_server.py::test_the_link_to_the_controller_has_the_times_of_the_settings"
_LIFECYCLE = f"{_SERVER}/test_broker_lifecycle_manager.py"
_HEARTBEATS = f"{_LIFECYCLE}::test_heartbeats_and_sessions_have_the_times_of_the_settings"
_SOCKETS = f"{_SERVER}/test_socket_server.py"
_SOCKET_SIZES = f"{_SOCKETS}::test_sockets_have_the_buffers_and_the_backlog_of_the_settings"
_BOUNDS = f"{_SOCKETS}::test_the_bounds_on_connections_and_requests_are_settings"
_RETENTION_TIME = f"{_CONFIG}/test_log_settings.py::test_retention_is_milliseconds_over_minutes_over_hours"
_ROLL_TIME = f"{_CONFIG}/test_log_settings.py::test_roll_and_its_jitter_are_milliseconds_over_hours"
_LOG_TASKS = f"{_LOG}/test_log_housekeeper.py::test_the_times_of_the_tasks_are_settings"
_CHECKPOINTS = f"{_LOG}/test_log_manager.py::test_the_times_of_checkpoints_are_settings"
_AUTO_CREATION = f"{_SERVER}/test_auto_topic_creation_manager.py"
_DEFAULTS = f"{_AUTO_CREATION}::test_other_topics_have_the_brokers_defaults_and_the_time_of_a_request"
_OFFSETS_TOPIC = f"{_SERVER}/test_topic_spec.py::test_the_offsets_topic_has_the_shape_of_the_settings"
_ASKED_AT_A_TIME = f"{_UNIT}/replication/test_replica_fetcher.py::test_what_a_follower_asks_for_at_a_time_is_a_setting"
_ASKED_OF_A_LEADER = f"{_SERVER}/test_remote_leader_endpoint.py::test_a_fetch_says_who_asks_and_what"
_SESSIONS = f"{_GROUP}/test_join_group.py::test_07_the_bounds_of_session_timeouts_are_settings"
_OFFSETS_KEPT = (
    f"{_GROUP}/test_offset_metadata_manager.py::test_40_the_time_offsets_are_kept_and_looked_at_are_settings"
)

_HELD_BACK = f"{_UNIT}/replication/test_fetch_reader.py::test_a_follower_that_catches_up_is_held_back_by_the_throttle"
_HELD_BACK_ITSELF = f"{_UNIT}/replication/test_replica_fetcher.py::test_a_follower_that_catches_up_holds_itself_back"
_QUOTA_WINDOW = f"{_UNIT}/server/test_client_quota_manager.py::test_the_window_is_a_setting"
_THROTTLE_WINDOW = f"{_UNIT}/replication/test_replication_throttle.py::test_the_window_is_a_setting"

_WAL = f"{_UNIT}/wal"
_WAL_SETTINGS = "tests/scenarios/test_wal_settings.py"
_BUCKET_SETTINGS = f"{_WAL}/storage/test_wal_storage_context.py::test_every_setting_gets_where_it_belongs"
_TOPIC_SPEC = f"{_SERVER}/test_topic_spec.py"
_POINTERS_TOPIC = f"{_TOPIC_SPEC}::test_the_metadata_topic_of_the_wal_has_the_shape_of_the_settings"
_OTHER_PREFIXES = f"{_CONFIG}/test_remote_wal_settings.py::test_other_prefixes_name_the_same_settings"
_THROUGH_A_BUCKET = f"{_UNIT}/replication/test_partition.py::test_which_partitions_go_through_a_bucket"
_SWEEPS = f"{_WAL}/retention/test_wal_object_sweeper.py::test_a_broker_sweeps_by_its_settings"
_COST_POLICY = f"{_WAL_SETTINGS}::test_what_waits_for_the_price_of_requests_is_a_setting"

_TIERING_RULES = f"{_CONFIG}/test_remote_log_rules.py"
_TIERING_SETTINGS = f"{_CONFIG}/test_remote_log_settings.py"
_TIERED_BUCKET = f"{_UNIT}/tiering/test_remote_storage_context.py::test_every_setting_gets_where_it_belongs"
_TIERED_TOPIC = f"{_SERVER}/test_topic_spec.py::test_the_metadata_topic_of_tiered_storage_has_the_shape_of_the_settings"
_TIERED_METADATA = (
    f"{_UNIT}/tiering/test_topic_based_remote_log_metadata_manager.py::test_the_settings_are_those_of_the_broker"
)
_TIERED_QUOTAS = f"{_UNIT}/tiering/test_remote_quota.py::test_the_settings_are_those_of_now"
_REMOTE_READERS = f"{_UNIT}/tiering/test_remote_log_access.py::test_32_too_many_reads_are_refused"
_TIERING_PREFIXES = f"{_TIERING_SETTINGS}::test_other_prefixes_name_the_same_settings"

# The broker's value is what its topics begin with; what it does is proven by the topics' own setting.
REACHES_TOPICS: Final = f"{_CONFIG}/test_topic_config.py::test_each_setting_of_the_broker_reaches_its_topics"

BROKER: Final = {
    "process.roles": _A_NODE,
    "node.id": _A_NODE,
    "broker.id": f"{_CONFIG}/test_broker_config.py::test_broker_id_is_the_older_name_of_node_id",
    "broker.rack": _A_NODE,
    "log.dir": f"{_CONFIG}/test_broker_config.py::test_log_dir_is_used_without_log_dirs",
    "log.dirs": _A_NODE,
    "metadata.log.dir": f"{_CONFIG}/test_broker_config.py::test_wrong_values_are_refused_with_one_sentence",
    "metrics.http.listener": _A_NODE,
    "controller.quorum.voters": _A_NODE,
    "controller.quorum.bootstrap.servers": _A_NODE,
    "controller.quorum.request.timeout.ms": (
        "tests/interop/test_node_settings.py::test_the_times_of_a_start_without_a_controller"
    ),
    "controller.quorum.fetch.timeout.ms": _QUORUM_TIMES,
    "controller.quorum.retry.backoff.ms": _QUORUM_TIMES,
    "broker.heartbeat.interval.ms": _HEARTBEATS,
    "broker.session.timeout.ms": _HEARTBEATS,
    "initial.broker.registration.timeout.ms": f"{_LIFECYCLE}::test_the_time_for_a_registration_is_a_setting",
    "controlled.shutdown.enable": f"{_LIFECYCLE}::test_without_controlled_shutdown_the_broker_just_leaves",
    "request.timeout.ms": _DEFAULTS,
    "metadata.log.max.record.bytes.between.snapshots": (
        f"{_CONTROLLER}/test_controller.py::test_a_snapshot_is_taken_by_itself_after_enough_bytes_and_after_enough_time"
    ),
    "metadata.log.max.snapshot.interval.ms": (
        f"{_CONTROLLER}/test_controller.py::test_the_interval_of_snapshots_is_a_setting"
    ),
    "metadata.log.segment.bytes": f"{_CONTROLLER}/test_command_queue.py::test_segments_roll_by_size_and_when_asked",
    "listeners": _A_NODE,
    "advertised.listeners": _A_NODE,
    "listener.security.protocol.map": _A_NODE,
    "inter.broker.listener.name": f"{_LISTENERS}::test_listeners_that_do_not_fit_are_refused",
    "security.inter.broker.protocol": (
        f"{_LISTENERS}::test_inter_broker_listener_follows_the_protocol_when_it_is_not_named"
    ),
    "controller.listener.names": _A_NODE,
    "socket.send.buffer.bytes": _SOCKET_SIZES,
    "socket.receive.buffer.bytes": _SOCKET_SIZES,
    "socket.request.max.bytes": _BOUNDS,
    "socket.listen.backlog.size": _SOCKET_SIZES,
    "max.connections": _BOUNDS,
    "max.connections.per.ip": f"{_SOCKETS}::test_max_connections_per_ip_refuses_the_next_one",
    "max.connections.per.ip.overrides": _BOUNDS,
    "connections.max.idle.ms": f"{_SOCKETS}::test_idle_connections_are_closed",
    "queued.max.request.bytes": f"{_SERVER}/test_connection.py::test_queued_max_request_bytes_stops_the_reading",
    "max.request.partition.size.limit": (
        f"{_SERVER}/handlers/test_describe_topic_partitions.py::"
        "test_the_brokers_limit_bounds_the_clients_and_zero_is_one"
    ),
    "fetch.max.bytes": (f"{_SERVER}/handlers/test_fetch.py::test_fetch_max_bytes_of_the_broker_bounds_the_answer"),
    "max.incremental.fetch.session.cache.slots": _A_NODE,
    "message.max.bytes": REACHES_TOPICS,
    "compression.type": REACHES_TOPICS,
    "compression.gzip.level": REACHES_TOPICS,
    "compression.lz4.level": REACHES_TOPICS,
    "compression.zstd.level": REACHES_TOPICS,
    "log.segment.bytes": f"{_CONFIG}/test_topic_config.py::test_own_values_win_over_the_brokers",
    "log.roll.ms": _ROLL_TIME,
    "log.roll.hours": REACHES_TOPICS,
    "log.roll.jitter.ms": _ROLL_TIME,
    "log.roll.jitter.hours": REACHES_TOPICS,
    "log.retention.ms": _RETENTION_TIME,
    "log.retention.minutes": REACHES_TOPICS,
    "log.retention.hours": f"{_CONFIG}/test_topic_config.py::test_own_values_win_over_the_brokers",
    "log.retention.bytes": REACHES_TOPICS,
    "log.retention.check.interval.ms": _LOG_TASKS,
    "log.segment.delete.delay.ms": REACHES_TOPICS,
    "log.cleanup.policy": REACHES_TOPICS,
    "log.cleaner.delete.retention.ms": REACHES_TOPICS,
    "log.cleaner.min.cleanable.ratio": REACHES_TOPICS,
    "log.cleaner.min.compaction.lag.ms": REACHES_TOPICS,
    "log.cleaner.max.compaction.lag.ms": REACHES_TOPICS,
    "log.cleaner.enable": f"{_CLEANER}::test_without_log_cleaner_enable_every_record_stays",
    "log.cleaner.backoff.ms": f"{_CLEANER}::test_the_backoff_is_a_setting_that_may_change",
    "log.cleaner.dedupe.buffer.size": f"{_CLEANER}::test_the_room_for_keys_is_a_setting",
    "log.cleaner.io.buffer.load.factor": f"{_CLEANER}::test_the_room_for_keys_is_a_setting",
    "log.cleaner.io.max.bytes.per.second": f"{_CLEANER}::test_the_bytes_of_a_second_are_a_setting",
    "log.index.size.max.bytes": REACHES_TOPICS,
    "log.index.interval.bytes": REACHES_TOPICS,
    "log.flush.interval.messages": REACHES_TOPICS,
    "log.flush.interval.ms": REACHES_TOPICS,
    "log.flush.scheduler.interval.ms": _LOG_TASKS,
    "log.flush.offset.checkpoint.interval.ms": _CHECKPOINTS,
    "log.message.timestamp.type": REACHES_TOPICS,
    "log.message.timestamp.before.max.ms": REACHES_TOPICS,
    "log.message.timestamp.after.max.ms": REACHES_TOPICS,
    "log.initial.task.delay.ms": _LOG_TASKS,
    "producer.id.expiration.ms": (
        f"{_LOG}/test_log_manager.py::test_producers_are_forgotten_after_the_time_of_the_settings"
    ),
    "producer.id.expiration.check.interval.ms": _LOG_TASKS,
    "num.partitions": _DEFAULTS,
    "default.replication.factor": _DEFAULTS,
    "auto.create.topics.enable": f"{_SERVER}/handlers/test_metadata.py::test_when_topics_are_created",
    "delete.topic.enable": f"{_CONTROLLER}/test_topic_control_manager.py::test_deletion_can_be_disabled",
    "min.insync.replicas": REACHES_TOPICS,
    "unclean.leader.election.enable": REACHES_TOPICS,
    "unclean.leader.election.interval.ms": (
        f"{_CONTROLLER}/test_controller_maintenance.py::test_unclean_leaders_are_elected_after_the_topic_allows_it"
    ),
    "auto.leader.rebalance.enable": (
        f"{_CONTROLLER}/test_controller_maintenance.py::test_leadership_stays_where_it_is_without_balancing"
    ),
    "leader.imbalance.check.interval.seconds": (
        f"{_CONTROLLER}/test_controller_maintenance.py::test_leadership_goes_back_to_preferred_replicas"
    ),
    "replica.selector.class": (
        f"{_UNIT}/replication/test_replica_selector.py::test_a_consumer_is_sent_to_the_in_sync_replica_of_its_rack"
    ),
    "leader.replication.throttled.rate": _HELD_BACK,
    "follower.replication.throttled.rate": _HELD_BACK_ITSELF,
    "quota.window.num": _QUOTA_WINDOW,
    "quota.window.size.seconds": _QUOTA_WINDOW,
    "replication.quota.window.num": _THROTTLE_WINDOW,
    "replication.quota.window.size.seconds": _THROTTLE_WINDOW,
    "num.replica.fetchers": (
        f"{_UNIT}/replication/test_replica_fetcher_manager.py"
        "::test_partitions_are_shared_out_anew_when_the_number_of_fetchers_changes"
    ),
    "replica.fetch.max.bytes": _ASKED_AT_A_TIME,
    "replica.fetch.wait.max.ms": _ASKED_AT_A_TIME,
    "replica.fetch.backoff.ms": (
        f"{_UNIT}/replication/test_replica_fetcher.py::test_other_refusals_wait_for_the_back_off"
    ),
    "replica.fetch.min.bytes": _ASKED_OF_A_LEADER,
    "replica.fetch.response.max.bytes": _ASKED_OF_A_LEADER,
    "replica.socket.timeout.ms": _ASKED_OF_A_LEADER,
    "replica.lag.time.max.ms": f"{_UNIT}/replication/test_replica_manager.py::test_the_lag_time_is_a_setting",
    "replica.high.watermark.checkpoint.interval.ms": _CHECKPOINTS,
    "remote.wal.storage.system.enable": _THROUGH_A_BUCKET,
    "remote.wal.topics": f"{_UNIT}/metadata/test_config_repository.py::test_listed_topics_go_through_a_bucket",
    "remote.wal.storage.manager.class.name": _BUCKET_SETTINGS,
    "remote.wal.storage.manager.impl.prefix": _OTHER_PREFIXES,
    "remote.wal.metadata.manager.impl.prefix": _OTHER_PREFIXES,
    "rwsm.config.bucket": _BUCKET_SETTINGS,
    "rwsm.config.endpoint.url": _BUCKET_SETTINGS,
    "rwsm.config.region": _BUCKET_SETTINGS,
    "rwsm.config.access.key": _BUCKET_SETTINGS,
    "rwsm.config.secret.key": _BUCKET_SETTINGS,
    "rwsm.config.path.style": _BUCKET_SETTINGS,
    "rwsm.config.az.id": f"{_CONFIG}/test_remote_wal_rules.py::test_values_that_do_not_fit_together",
    "rwsm.config.key.prefix": (
        f"{_WAL}/storage/test_bucket_wal_storage_manager.py::test_the_key_prefix_is_nobody_elses_business"
    ),
    "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": _POINTERS_TOPIC,
    "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": _POINTERS_TOPIC,
    "rwlmm.config.remote.wal.log.metadata.topic.retention.ms": _POINTERS_TOPIC,
    "rwlmm.config.remote.wal.log.metadata.producer.acks": (
        f"{_SERVER}/wal/test_wal_metadata_topic.py::test_acks_are_those_of_the_setting"
    ),
    "remote.wal.combine.interval.ms": f"{_WAL_SETTINGS}::test_the_interval_is_a_setting",
    "remote.wal.combine.max.bytes": f"{_WAL_SETTINGS}::test_the_size_of_objects_is_a_setting",
    "remote.wal.combine.min.bytes": f"{_WAL_SETTINGS}::test_the_size_from_which_objects_do_not_wait_is_a_setting",
    "remote.wal.combine.max.linger.ms": f"{_WAL_SETTINGS}::test_linger_is_a_setting",
    "remote.wal.combine.economy.linger.ms": _COST_POLICY,
    "remote.wal.combine.partition.max.bytes": f"{_WAL_SETTINGS}::test_the_share_of_a_partition_is_a_setting",
    "remote.wal.cost.policy": _COST_POLICY,
    "remote.wal.metadata.slice.events.enable": (
        f"{_WAL}/announce/test_remote_wal_metadata_publisher.py::test_slices_need_not_be_told_one_by_one"
    ),
    "remote.wal.object.retention.mode": _SWEEPS,
    "remote.wal.object.min.retention.ms": _SWEEPS,
    "remote.wal.orphan.min.age.ms": _SWEEPS,
    "remote.wal.gc.interval.ms": _SWEEPS,
    "remote.wal.upload.max.inflight": f"{_WAL_SETTINGS}::test_how_many_uploads_run_at_once_is_a_setting",
    "remote.wal.upload.timeout.ms": _BUCKET_SETTINGS,
    "remote.wal.upload.retry.backoff.ms": _BUCKET_SETTINGS,
    "remote.wal.upload.retry.max.ms": _BUCKET_SETTINGS,
    "remote.wal.fetch.threads": f"{_WAL}/follow/test_wal_fetcher.py::test_no_more_gets_at_once_than_the_setting_says",
    "remote.wal.fetch.timeout.ms": _BUCKET_SETTINGS,
    "remote.wal.fetch.lag.wait.ms": (
        f"{_WAL_SETTINGS}::test_how_long_the_fetch_of_a_follower_that_is_behind_is_held_is_a_setting"
    ),
    "remote.wal.fallback.enable": (
        f"{_WAL}/upload/test_leader_partition.py::test_fallback_can_be_forbidden_and_what_is_stuck_is_uploaded_again"
    ),
    "remote.wal.fallback.lag.ms": f"{_WAL_SETTINGS}::test_when_a_leader_sends_records_itself_is_a_setting",
    "remote.wal.republish.mode": f"{_WAL}/upload/test_backfill.py::test_it_can_be_switched_off",
    "remote.wal.republish.max.bytes.per.second": f"{_WAL}/upload/test_backfill.py::test_it_keeps_to_its_rate",
    "remote.list.offsets.request.timeout.ms": (
        f"{_UNIT}/replication/test_remote_offset_lookups.py::test_the_brokers_timeout_is_that_of_now"
    ),
    "remote.log.storage.system.enable": f"{_TIERING_RULES}::test_topics_are_tiered_only_where_nodes_have_it_on",
    "remote.log.storage.manager.class.name": _TIERED_BUCKET,
    "remote.log.storage.manager.impl.prefix": _TIERING_PREFIXES,
    "remote.log.metadata.manager.class.name": f"{_TIERING_SETTINGS}::test_what_is_accepted",
    "remote.log.metadata.manager.impl.prefix": _TIERING_PREFIXES,
    "remote.log.metadata.manager.listener.name": (
        f"{_TIERING_RULES}::test_the_metadata_topic_is_reached_through_a_listener_of_brokers"
    ),
    "remote.log.manager.thread.pool.size": f"{_TIERING_SETTINGS}::test_pools_may_be_as_large_as_the_one_of_before",
    "remote.log.manager.copier.thread.pool.size": (
        f"{_UNIT}/tiering/test_remote_log_manager.py::test_so_many_copy_at_once_as_the_setting_says"
    ),
    "remote.log.manager.copy.max.bytes.per.second": _TIERED_QUOTAS,
    "remote.log.manager.copy.quota.window.num": _TIERED_QUOTAS,
    "remote.log.manager.copy.quota.window.size.seconds": _TIERED_QUOTAS,
    "remote.log.manager.fetch.max.bytes.per.second": _TIERED_QUOTAS,
    "remote.log.manager.fetch.quota.window.num": _TIERED_QUOTAS,
    "remote.log.manager.fetch.quota.window.size.seconds": _TIERED_QUOTAS,
    "remote.log.manager.expiration.thread.pool.size": (
        f"{_UNIT}/tiering/test_remote_log_manager.py::test_so_many_expire_at_once_as_the_setting_says"
    ),
    "remote.log.manager.task.interval.ms": (
        f"{_UNIT}/tiering/test_remote_log_manager.py::test_how_long_tasks_rest_is_a_setting"
    ),
    "remote.log.metadata.custom.metadata.max.bytes": (
        f"{_UNIT}/tiering/test_copy_task.py::test_the_limit_of_custom_metadata_is_a_setting"
    ),
    "remote.log.index.file.cache.total.size.bytes": (
        f"{_UNIT}/tiering/test_remote_index_cache.py::test_52_the_limit_follows_the_settings"
    ),
    "remote.log.reader.threads": _REMOTE_READERS,
    "remote.log.reader.max.pending.tasks": _REMOTE_READERS,
    "remote.fetch.max.wait.ms": (
        "tests/scenarios/test_remote_fetch.py::test_31_a_remote_fetch_that_is_too_slow_is_empty"
    ),
    "rlmm.config.remote.log.metadata.topic.num.partitions": _TIERED_TOPIC,
    "rlmm.config.remote.log.metadata.topic.replication.factor": _TIERED_TOPIC,
    "rlmm.config.remote.log.metadata.topic.retention.ms": _TIERED_TOPIC,
    "rlmm.config.remote.log.metadata.consume.wait.ms": _TIERED_METADATA,
    "rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms": _TIERED_METADATA,
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": _TIERED_METADATA,
    "log.local.retention.bytes": REACHES_TOPICS,
    "log.local.retention.ms": REACHES_TOPICS,
    "rsm.config.bucket": _TIERED_BUCKET,
    "rsm.config.key.prefix": _TIERED_BUCKET,
    "rsm.config.endpoint.url": _TIERED_BUCKET,
    "rsm.config.region": _TIERED_BUCKET,
    "rsm.config.access.key": _TIERED_BUCKET,
    "rsm.config.secret.key": _TIERED_BUCKET,
    "rsm.config.path.style": _TIERED_BUCKET,
    "group.min.session.timeout.ms": _SESSIONS,
    "group.max.session.timeout.ms": _SESSIONS,
    "group.initial.rebalance.delay.ms": (f"{_GROUP}/test_join_group.py::test_03_the_delay_of_a_new_group_is_a_setting"),
    "group.max.size": f"{_GROUP}/test_join_group.py::test_33_a_full_group_turns_new_members_away",
    "offset.metadata.max.bytes": (
        f"{_GROUP}/test_offset_metadata_manager.py::test_38_the_greatest_metadata_is_a_setting"
    ),
    "offsets.load.buffer.size": (
        f"{_UNIT}/coordinator/test_coordinator_loader.py::test_the_size_of_reads_is_a_setting"
    ),
    "offsets.retention.minutes": _OFFSETS_KEPT,
    "offsets.retention.check.interval.ms": _OFFSETS_KEPT,
    "offsets.topic.num.partitions": _OFFSETS_TOPIC,
    "offsets.topic.segment.bytes": _OFFSETS_TOPIC,
    "offsets.topic.replication.factor": _OFFSETS_TOPIC,
    "offsets.topic.compression.codec": f"{_CONTEXT}::test_the_codec_of_the_offsets_topic",
    "offsets.commit.timeout.ms": f"{_CONTEXT}::test_the_time_for_a_commit_is_a_setting",
    "wherry.price.list": f"{_UNIT}/wal/cost/test_prices.py::test_prices_are_those_of_the_settings",
    "wherry.price.cross.zone.dollars.per.gb": f"{_UNIT}/wal/cost/test_prices.py::test_prices_are_those_of_the_settings",
    "wherry.remote.log.read.ahead.chunks": (
        f"{_UNIT}/server/tiering/test_tiered_storage.py::test_how_far_reads_look_ahead_is_a_setting"
    ),
    "wherry.fault.switch.enable": f"{_UNIT}/test_node.py::test_faults_can_be_set_on_loopback_or_where_it_is_allowed",
}

_LEVELS = f"{_LOG}/test_unified_log.py::test_the_level_of_a_codec_is_the_topics"
_NEW_SEGMENT = f"{_LOG}/test_local_log.py::test_a_new_segment_carries_its_settings"

TOPIC: Final = {
    "cleanup.policy": f"{_LOG}/test_log_retention.py::test_compacted_topics_lose_only_what_is_below_their_start",
    "compression.type": f"{_LOG}/test_leader_append.py::test_compression_type_recompresses_and_producer_keeps",
    "compression.gzip.level": _LEVELS,
    "compression.lz4.level": _LEVELS,
    "compression.zstd.level": _LEVELS,
    "delete.retention.ms": f"{_CLEANER}::test_the_dirty_ratio_and_delete_retention_ms_are_settings",
    "min.cleanable.dirty.ratio": f"{_CLEANER}::test_the_dirty_ratio_and_delete_retention_ms_are_settings",
    "min.compaction.lag.ms": f"{_LOG}/cleaner/test_cleanable_log.py::test_nothing_younger_than_min_compaction_lag_ms",
    "file.delete.delay.ms": f"{_LOG}/test_unified_log.py::test_deleted_files_stay_as_long_as_the_topic_says",
    "flush.messages": f"{_LOG}/test_leader_append.py::test_flush_messages_1_flushes_before_the_answer",
    "flush.ms": f"{_LOG}/test_log_housekeeper.py::test_flush_ms_flushes_what_is_old_enough",
    "index.interval.bytes": _NEW_SEGMENT,
    "internal.segment.bytes": f"{_CONFIG}/test_topic_config.py::test_segments_may_be_small_for_tests_only",
    "leader.replication.throttled.replicas": _HELD_BACK,
    "follower.replication.throttled.replicas": _HELD_BACK_ITSELF,
    "max.compaction.lag.ms": (
        f"{_LOG}/test_unified_log.py::test_segments_of_compacted_topics_are_closed_by_their_compaction_lag"
    ),
    "max.message.bytes": f"{_LOG}/test_leader_append.py::test_24_each_refusal_has_its_code_and_writes_nothing",
    "message.timestamp.after.max.ms": (
        f"{_LOG}/test_unified_log.py::test_a_timestamp_may_be_as_far_ahead_as_the_topic_says"
    ),
    "message.timestamp.before.max.ms": (
        f"{_LOG}/test_leader_append.py::test_24_each_refusal_has_its_code_and_writes_nothing"
    ),
    "message.timestamp.type": f"{_LOG}/test_leader_append.py::test_log_append_time_is_the_brokers",
    "min.insync.replicas": (
        f"{_UNIT}/replication/test_group_commit.py::test_acks_all_needs_enough_replicas_acks_one_does_not"
    ),
    "remote.wal.enable": _THROUGH_A_BUCKET,
    "local.retention.bytes": (
        f"{_CONFIG}/test_topic_config.py::test_records_stay_on_local_disks_as_long_as_all_unless_said_otherwise"
    ),
    "local.retention.ms": (
        f"{_CONFIG}/test_topic_config.py::test_records_stay_on_local_disks_as_long_as_all_unless_said_otherwise"
    ),
    "remote.log.copy.disable": f"{_TIERING_RULES}::test_topics_that_may_not_be_tiered_so",
    "remote.log.delete.on.disable": f"{_TIERING_RULES}::test_tiering_ends_only_with_what_is_in_the_bucket",
    "remote.storage.enable": f"{_TIERING_RULES}::test_topics_that_may_not_be_tiered_so",
    "retention.bytes": f"{_LOG}/test_log_retention.py::test_35_size_keeps_at_least_the_limit",
    "retention.ms": f"{_LOG}/test_log_retention.py::test_35_time_stops_at_the_first_segment_that_is_young_enough",
    "segment.bytes": f"{_LOG}/test_leader_append.py::test_the_batches_of_a_call_are_one_write_per_segment",
    "segment.index.bytes": _NEW_SEGMENT,
    "segment.jitter.ms": f"{_LOG}/test_local_log.py::test_22_jitter_is_below_its_bound_and_the_same_for_a_seed",
    "segment.ms": "tests/interop/test_every_metric.py::test_what_a_log_does",
    "unclean.leader.election.enable": (
        f"{_CONTROLLER}/test_controller_maintenance.py::test_unclean_leaders_are_elected_after_the_topic_allows_it"
    ),
}
