"""What the boards show.

In expressions `{I}` stands for the brokers that are chosen above a board, `{T}` for brokers and topics, `[R]` for a
time that fits the picture; ALL_CAPS begin the names Kafka gave.
"""

from typing import Final

from panels import Board, Row, graph, mean, number, per_month, quantile, quantiles, rate, stack

# Dollars a second.  Items fetch and tiered of broker_cost_dollars_total are no part of replication through buckets.
_BUCKET_ITEMS: Final = '{I, item!~"fetch|tiered"}'
_HERE: Final = rate(f"broker_cost_dollars_total{_BUCKET_ITEMS}")
_FALLBACK: Final = rate('broker_cost_dollars_total{I, item="fallback"}')
_BETWEEN_ZONES: Final = f"({rate('broker_cost_saved_dollars_total{I}')} + {_FALLBACK})"
_SAVED_SO_FAR: Final = (
    'sum(broker_cost_saved_dollars_total{I}) - sum(broker_cost_dollars_total{I, item!~"fetch|tiered|fallback"})'
)

# fmt: off
CLUSTER: Final = Board("wherry-cluster", "Wherry: cluster", [
    Row("Health", [
        number("Brokers serving", "count(broker_fenced{I} == 0) or vector(0)"),
        number("Controllers that lead", "sum(CONTROLLER_activecontrollercount)", about="Must be 1."),
        number("Offline partitions", "max(CONTROLLER_offlinepartitionscount)", red_from=1),
        number("Under min ISR", "sum(REPLICAS_underminisrpartitioncount{I})", red_from=1),
        number("Under-replicated", "sum(REPLICAS_underreplicatedpartitions{I})", red_from=1),
        number("Offline replicas", "sum(REPLICAS_offlinereplicacount{I})", red_from=1),
        number("Topics", "max(CONTROLLER_globaltopiccount)"),
        number("Partitions", "max(CONTROLLER_globalpartitioncount)"),
        number("Fenced brokers", "max(CONTROLLER_fencedbrokercount)", red_from=1),
        number("Not led by the preferred", "max(CONTROLLER_preferredreplicaimbalancecount)"),
        number("Records in", rate("TOPIC_messagesin_total{T}"), "cps"),
        number("Least disk free", "min(broker_disk_free_bytes{I} / broker_disk_size_bytes{I})", "percentunit"),
    ]),
    Row("Throughput", [
        stack("Bytes in", (rate("TOPIC_bytesin_total{T}", "topic"), "{{topic}}"), unit="Bps"),
        stack("Bytes out to consumers", (rate("TOPIC_bytesout_total{T}", "topic"), "{{topic}}"), unit="Bps"),
        stack("Records in", (rate("TOPIC_messagesin_total{T}", "topic"), "{{topic}}"), unit="cps"),
        graph("Bytes in by broker", (rate("TOPIC_bytesin_total{T}", "instance"), "{{instance}}"), unit="Bps"),
        graph(
            "Replication by broker", (rate("TOPIC_replicationbytesin_total{T}", "instance"), "{{instance}} in"),
            (rate("TOPIC_replicationbytesout_total{T}", "instance"), "{{instance}} out"), unit="Bps",
            about="Between brokers; what goes through buckets is on the board of the WAL.",
        ),
        graph(
            "Produce and fetch that failed",
            (rate("TOPIC_failedproducerequests_total{T}", "topic"), "produce {{topic}}"),
            (rate("TOPIC_failedfetchrequests_total{T}", "topic"), "fetch {{topic}}"), unit="reqps",
        ),
    ]),
    Row("Requests", [
        stack(
            "Requests", (rate("kafka_network_requestmetrics_requests_total{I}", "request"), "{{request}}"),
            unit="reqps",
        ),
        graph(
            "Errors told to clients",
            (
                rate('kafka_network_requestmetrics_errors_total{I, error!="none"}', "request, error"),
                "{{request}} {{error}}",
            ),
            unit="reqps",
        ),
        graph(
            "Connections",
            (
                "sum by (instance, listener) (kafka_server_socketservermetrics_connectioncount{I})",
                "{{instance}} {{listener}}",
            ),
        ),
        quantiles("Produce, whole time", "broker_request_seconds", '{I, request="Produce", phase="total"}'),
        graph(
            "Produce by phase, p99",
            (
                quantile(0.99, 'broker_request_seconds_bucket{I, request="Produce", phase!="total"}', "phase"),
                "{{phase}}",
            ),
            unit="s", about="queue and local: a busy broker. remote: replicas.",
        ),
        quantiles("Fetch in its handler", "broker_request_seconds", '{I, request="Fetch", phase="local"}'),
    ]),
    Row("Replication", [
        graph("Leaders", ("REPLICAS_leadercount{I}", "{{instance}}")),
        graph("Replicas", ("REPLICAS_partitioncount{I}", "{{instance}}")),
        graph(
            "ISR changes", (rate("REPLICAS_isrshrinks_total{I}", "instance"), "{{instance}} shrinks"),
            (rate("REPLICAS_isrexpands_total{I}", "instance"), "{{instance}} expands"), unit="ops",
        ),
        graph("Records the latest follower lacks", ("FETCHERS_maxlag{I}", "{{instance}}")),
        graph("Partitions not followed any more", ("FETCHERS_failedpartitionscount{I}", "{{instance}}")),
        graph("Partitions being moved", ("REPLICAS_reassigningpartitions{I}", "{{instance}}")),
    ]),
    Row("Groups", [
        graph("Lag by group", ("sum by (group) (broker_group_lag{T})", "{{group}}")),
        stack(
            "Groups", ("sum(GROUPS_numgroupsstable{I})", "stable"), ("sum(GROUPS_numgroupsempty{I})", "empty"),
            ("sum(GROUPS_numgroupspreparingrebalance{I})", "preparing to rebalance"),
            ("sum(GROUPS_numgroupscompletingrebalance{I})", "completing a rebalance"),
        ),
        graph(
            "Rebalances and commits",
            (rate("kafka_server_group_coordinator_metrics_group_completed_rebalance_total{I}"), "rebalances"),
            (rate("kafka_server_group_coordinator_metrics_offset_commit_total{I}"), "offsets committed"), unit="ops",
        ),
    ]),
    Row("Brokers and controller", [
        stack("Local logs", ("sum by (instance) (kafka_log_log_size{T})", "{{instance}}"), unit="bytes"),
        graph(
            "Disk free", ("broker_disk_free_bytes{I} / broker_disk_size_bytes{I}", "{{instance}}"), unit="percentunit",
        ),
        quantiles("Flushes of logs", "broker_log_flush_seconds"),
        graph(
            "Event loop held, p99",
            (quantile(0.99, "broker_event_loop_lag_seconds_bucket{I}", "instance"), "{{instance}}"), unit="s",
            about="All requests of a broker wait meanwhile.",
        ),
        graph(
            "Memory of requests and answers", ("broker_requests_in_flight_bytes{I}", "{{instance}} requests"),
            ("broker_unsent_response_bytes{I}", "{{instance}} answers"), unit="bytes",
        ),
        graph(
            "Cluster metadata not applied yet", ("broker_metadata_lag_records{I}", "{{instance}}"),
            about="Records of the metadata log.",
        ),
        quantiles("Flushes of the metadata log", "broker_controller_flush_seconds"),
        graph(
            "Commands of the controller", (rate("broker_controller_commands_total{I}", "command"), "{{command}}"),
            unit="ops",
        ),
        graph(
            "Heartbeats not answered", (rate("broker_heartbeat_failures_total{I}", "instance"), "{{instance}}"),
            unit="ops",
        ),
    ]),
])

WAL: Final = Board("wherry-wal", "Wherry: replication through buckets", [
    Row("Now", [
        number("End to end, p50", quantile(0.5, 'broker_wal_hop_seconds_bucket{I, hop="end_to_end"}'), "s"),
        number("End to end, p99", quantile(0.99, 'broker_wal_hop_seconds_bucket{I, hop="end_to_end"}'), "s"),
        number(
            "Committed, p99", quantile(0.99, 'broker_wal_hop_seconds_bucket{I, hop="high_watermark"}'), "s",
            about="What acks=all waits for.",
        ),
        number("Partitions in fallback", "sum(TOPIC_remotewalfallbackpartitions{I})", red_from=1),
        number("Buckets left alone", "sum(broker_wal_bucket_circuit_open{I})", red_from=1),
        number("Latest copy", "max(TOPIC_remotewalcopylagms{T})", "ms", red_from=1000),
    ]),
    Row("Where the time goes", [
        graph("Hops, p50", (quantile(0.5, "broker_wal_hop_seconds_bucket{I}", "hop"), "{{hop}}"), unit="s", width=12),
        graph("Hops, p99", (quantile(0.99, "broker_wal_hop_seconds_bucket{I}", "hop"), "{{hop}}"), unit="s", width=12),
        quantiles(
            "End to end", "broker_wal_hop_seconds", '{I, hop="end_to_end"}',
            about="Record's timestamp to its append at a follower.",
        ),
        quantiles("Append to committed", "broker_wal_hop_seconds", '{I, hop="high_watermark"}'),
        stack(
            "Legs at the leader, mean",
            (mean("broker_wal_hop_seconds", '{I, hop=~"leader_append|combine_wait|put|publish"}', "hop"), "{{hop}}"),
            unit="s",
        ),
    ]),
    Row("Paths", [
        stack(
            "Bytes to followers by path", (rate("broker_replication_bytes_total{T}", "path"), "{{path}}"), unit="Bps",
            about="wal: from a bucket; fallback: "
            "from the leader, because the bucket did not serve; fetch: from the leader, as ever.",
        ),
        graph(
            "Lag by path", ("max by (path) (broker_replication_lag_seconds{T})", "{{path}}"), unit="s",
            about="Of the follower furthest behind.",
        ),
        graph("Lag by path in bytes", ("max by (path) (broker_replication_lag_bytes{T})", "{{path}}"), unit="bytes"),
        graph("Lag by path in records", ("max by (path) (broker_replication_lag_records{T})", "{{path}}")),
        graph(
            "Lag of followers of buckets", ("max by (topic) (TOPIC_remotewalfollowerlagbytes{T})", "{{topic}}"),
            unit="bytes",
        ),
        graph(
            "Bytes between zones by path",
            (
                rate("broker_replication_bytes_total{T}", "path, zone_from, zone_to"),
                "{{path}} {{zone_from}} > {{zone_to}}",
            ),
            unit="Bps",
        ),
    ]),
    Row("Fallback", [
        graph("Partitions in fallback", ("TOPIC_remotewalfallbackpartitions{I}", "{{instance}}")),
        stack(
            "Bytes sent without a bucket", (rate("TOPIC_remotewalfallbackbytes_total{T}", "topic"), "{{topic}}"),
            unit="Bps",
        ),
        graph(
            "Uploaded again by a new leader", (rate("TOPIC_remotewalrepublishbytes_total{T}", "topic"), "{{topic}}"),
            unit="Bps",
        ),
        graph("Buckets left alone", ("broker_wal_bucket_circuit_open{I}", "{{instance}} {{store}}")),
        graph("Not in the bucket yet", ("max by (topic) (TOPIC_remotewalcopylagms{T})", "{{topic}}"), unit="ms"),
        graph(
            "Not in the bucket yet, bytes", ("sum by (topic) (TOPIC_remotewalcopylagbytes{T})", "{{topic}}"),
            unit="bytes",
        ),
    ]),
    Row("Objects", [
        graph(
            "Objects a second", (rate("TOPIC_remotewalcopyrequests_total{T}", "topic"), "uploaded {{topic}}"),
            (rate("TOPIC_remotewalfetchrequests_total{T}", "topic"), "read {{topic}}"),
            (rate("TOPIC_remotewaldeleterequests_total{T}", "topic"), "deleted {{topic}}"), unit="ops",
            about="An object with records of several topics counts for each.",
        ),
        graph(
            "Bytes of the bucket", (rate("TOPIC_remotewalcopybytes_total{T}", "topic"), "uploaded {{topic}}"),
            (rate("TOPIC_remotewalfetchbytes_total{T}", "topic"), "read {{topic}}"), unit="Bps",
        ),
        quantiles("Sizes of objects", "broker_wal_object_size_bytes", unit="bytes"),
        quantiles("Slices in an object", "broker_wal_slices_per_object", unit="short"),
        graph(
            "When objects begin", ("broker_wal_combine_interval_seconds{I}", "{{instance}} interval"),
            ("broker_wal_combine_linger_seconds{I}", "{{instance}} linger"), unit="s",
        ),
        graph("Uploads under way", ("broker_wal_inflight_uploads{I}", "{{instance}}")),
        graph("Objects kept", ("broker_wal_objects_live{I}", "{{instance}}")),
        graph("Bytes kept", ("broker_wal_objects_live_bytes{I}", "{{instance}}"), unit="bytes"),
        graph(
            "Orphans deleted", (rate("broker_wal_orphan_objects_deleted_total{I}", "instance"), "{{instance}}"),
            unit="ops",
        ),
    ]),
    Row("Requests to buckets", [
        stack("Requests", (rate("broker_objectstore_requests_total{I}", "operation"), "{{operation}}"), unit="reqps"),
        graph(
            "That did not succeed",
            (rate('broker_objectstore_requests_total{I, outcome!="ok"}', "store, outcome"), "{{store}} {{outcome}}"),
            unit="reqps",
        ),
        graph(
            "Time of a request, p99",
            (quantile(0.99, "broker_objectstore_request_seconds_bucket{I}", "operation"), "{{operation}}"), unit="s",
        ),
        graph(
            "Time of a request by bucket, p99",
            (quantile(0.99, "broker_objectstore_request_seconds_bucket{I}", "store"), "{{store}}"), unit="s",
        ),
        stack(
            "Bytes", (rate("broker_objectstore_bytes_total{I}", "store, operation"), "{{store}} {{operation}}"),
            unit="Bps",
        ),
        graph(
            "Not even asked", (rate("broker_objectstore_queue_full_total{I}", "store"), "queue full {{store}}"),
            (rate("broker_objectstore_circuit_opened_total{I}", "store"), "left alone {{store}}"), unit="ops",
        ),
    ]),
    Row("What went wrong", [
        graph(
            "Errors", (rate("TOPIC_remotewalcopyerrors_total{T}"), "uploads given up"),
            (rate("TOPIC_remotewalfetcherrors_total{T}"), "reads"),
            (rate("TOPIC_remotewaldeleteerrors_total{T}"), "deletions"), unit="ops",
        ),
        graph(
            "Slices not taken", (rate("TOPIC_remotewalstalemetadata_total{T}"), "object not there"),
            (rate("TOPIC_remotewalfencedmetadata_total{T}"), "of a former leader"),
            (rate("TOPIC_remotewalcorrupt_total{T}"), "corrupt"), unit="ops",
        ),
        graph(
            "__remote_wal_log_metadata",
            ("broker_wal_metadata_consumer_lag_records{I}", "{{instance}} records to read"),
            (rate("broker_wal_metadata_failures_total{I}", "what"), "failures a second: {{what}}"),
        ),
    ]),
])

TIERING: Final = Board("wherry-tiering", "Wherry: tiered storage", [
    Row("Now", [
        number("In remote storage", "sum(TOPIC_remotelogsizebytes{T})", "bytes"),
        number("Local logs of all topics", "sum(kafka_log_log_size{T})", "bytes"),
        number("To be copied", "sum(TOPIC_remotecopylagbytes{T})", "bytes"),
        number("To be deleted", "sum(TOPIC_remotedeletelagbytes{T})", "bytes"),
        number("Segments known", "sum(TOPIC_remotelogmetadatacount{T})"),
        number(
            "Topics not tiered", "max(broker_tiering_topics_not_tiered{I})", red_from=1,
            about="Though their settings say so.",
        ),
    ]),
    Row("Copies", [
        stack("Bytes copied", (rate("TOPIC_remotecopybytes_total{T}", "topic"), "{{topic}}"), unit="Bps"),
        graph(
            "Bytes to be copied", ("sum by (topic) (TOPIC_remotecopylagbytes{T})", "{{topic}}"), unit="bytes",
            about="Of closed segments. They stay on the local disk until they are copied.",
        ),
        graph("Segments to be copied", ("sum by (topic) (TOPIC_remotecopylagsegments{T})", "{{topic}}")),
        graph(
            "Copies", (rate("TOPIC_remotecopyrequests_total{T}", "topic"), "begun {{topic}}"),
            (rate("TOPIC_remotecopyerrors_total{T}", "topic"), "failed {{topic}}"), unit="ops",
        ),
        graph(
            "Copiers idle",
            ("kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent{I}", "{{instance}}"),
            unit="percentunit",
        ),
        graph("Rate as the quota sees it", ("kafka_server_rlmcopy_byte_rate{I}", "{{instance}}"), unit="Bps"),
    ]),
    Row("Reads", [
        stack("Bytes read for consumers", (rate("TOPIC_remotefetchbytes_total{T}", "topic"), "{{topic}}"), unit="Bps"),
        graph(
            "Reads", (rate("TOPIC_remotefetchrequests_total{T}", "topic"), "{{topic}}"),
            (rate("TOPIC_remotefetcherrors_total{T}", "topic"), "failed {{topic}}"), unit="ops",
        ),
        quantiles("Time of a read", "broker_remote_log_read_seconds"),
        graph("Reads that wait for a reader", ("READERS_remotelogreadertaskqueuesize{I}", "{{instance}}")),
        graph("Readers idle", ("READERS_remotelogreaderavgidlepercent{I}", "{{instance}}"), unit="percentunit"),
        graph(
            "Not in time", (rate("kafka_server_delayedremotefetchmetrics_expires_total{I}"), "fetches"),
            (rate("kafka_server_delayedremotelistoffsetsmetrics_expires_total{T}"), "timestamps"), unit="ops",
        ),
        graph("Rate as the quota sees it", ("kafka_server_rlmfetch_byte_rate{I}", "{{instance}}"), unit="Bps"),
        graph(
            "Held back by quotas, p99",
            (quantile(0.99, "broker_remote_log_throttle_seconds_bucket{I}", "what"), "{{what}}"), unit="s",
        ),
        graph(
            "Followers that began in remote storage",
            (rate("TOPIC_buildremotelogauxstaterequests_total{T}", "topic"), "{{topic}}"),
            (rate("TOPIC_buildremotelogauxstateerrors_total{T}", "topic"), "failed {{topic}}"), unit="ops",
        ),
    ]),
    Row("Expiry", [
        graph("Bytes in remote storage", ("sum by (topic) (TOPIC_remotelogsizebytes{T})", "{{topic}}"), unit="bytes"),
        graph("Bytes to be deleted", ("sum by (topic) (TOPIC_remotedeletelagbytes{T})", "{{topic}}"), unit="bytes"),
        graph(
            "Deletions", (rate("TOPIC_remotedeleterequests_total{T}", "topic"), "begun {{topic}}"),
            (rate("TOPIC_remotedeleteerrors_total{T}", "topic"), "failed {{topic}}"), unit="ops",
        ),
        graph(
            "Left of deleted topics",
            ("broker_remote_partitions_being_removed{I}", "{{instance}} partitions being removed"),
            ("broker_remote_log_leaked_topics{I}", "{{instance}} unknown topics"),
        ),
        graph(
            "Looks for what was left",
            (rate("broker_remote_log_leaked_partitions_deleted_total{I}"), "partitions deleted"),
            (rate("broker_remote_log_sweep_errors_total{I}"), "failed"), unit="ops",
        ),
        graph("Metadata expires too early", ("broker_tiering_metadata_retention_violations{I}", "{{instance}} topics")),
    ]),
    Row("Caches and metadata", [
        graph(
            "Index cache", ("broker_remote_index_cache_bytes{I}", "{{instance}} on disk"),
            ("broker_remote_index_cache_memory_bytes{I}", "{{instance}} in memory"), unit="bytes",
        ),
        graph(
            "Index cache misses", (rate("broker_remote_index_cache_downloads_total{I}", "instance"), "{{instance}}"),
            (rate("broker_remote_index_cache_corruptions_total{I}", "instance"), "{{instance}} corrupt"), unit="ops",
        ),
        graph("Chunk cache", ("broker_remote_log_chunk_cache_bytes{I}", "{{instance}}"), unit="bytes"),
        graph(
            "Chunks fetched", (rate("broker_remote_log_chunk_fetches_total{I}", "instance"), "{{instance}}"),
            unit="ops",
        ),
        graph(
            "__remote_log_metadata: records to read",
            ("broker_remote_log_metadata_consumer_lag_records{I}", "{{instance}}"),
        ),
        graph(
            "__remote_log_metadata: failures",
            (rate("broker_remote_log_metadata_failures_total{I}", "what"), "{{what}}"), unit="ops",
        ),
    ]),
])

COST: Final = Board("wherry-cost", "Wherry: cost", [
    Row("Dollars for 30 days like now", [
        number(
            "Through buckets", per_month(_HERE), "currencyUSD",
            about="Requests, bytes and storage of the fast buckets, and what fallback sent across zones.",
        ),
        number("The same bytes between zones", per_month(_BETWEEN_ZONES), "currencyUSD"),
        number("Saved", per_month(f"{_BETWEEN_ZONES} - {_HERE}"), "currencyUSD"),
        number(
            "Classic replication of other topics", per_month(rate('broker_cost_dollars_total{I, item="fetch"}')),
            "currencyUSD",
        ),
        number(
            "Tiered storage's requests", per_month(rate('broker_cost_dollars_total{I, item="tiered"}')), "currencyUSD",
            about="Without what is kept there.",
        ),
        number(
            "Brokers' own estimate of the saving", "sum(broker_cost_monthly_saving_dollars{I})", "currencyUSD",
            about="Of the last ten seconds; negative: the bucket costs more.",
        ),
    ]),
    Row("By item", [
        stack(
            "Dollars for 30 days, by item", (per_month(rate("broker_cost_dollars_total{I}", "item")), "{{item}}"),
            unit="currencyUSD", width=12,
        ),
        graph(
            "Here against between zones", (per_month(_HERE), "through buckets"),
            (per_month(_BETWEEN_ZONES), "the same bytes between zones"), unit="currencyUSD", width=12,
        ),
        stack(
            "Dollars since the brokers' start, by item", ("sum by (item) (broker_cost_dollars_total{I})", "{{item}}"),
            unit="currencyUSD",
        ),
        graph(
            "Saved since the brokers' start", (_SAVED_SO_FAR, "saved"), unit="currencyUSD",
            about="What the bytes from buckets of other zones would have cost, less what the buckets cost.",
        ),
        graph(
            "Saving in 30 days, by leader", ("broker_cost_monthly_saving_dollars{I}", "{{instance}}"),
            unit="currencyUSD",
        ),
    ]),
    Row("Break-even", [
        graph(
            "Bytes through the bucket, and from how many on it pays",
            (rate("TOPIC_remotewalcopybytes_total{I}", "instance"), "{{instance}} uploads"),
            ("broker_cost_break_even_bytes_per_second{I}", "{{instance}} pays from"), unit="Bps", width=12,
            about="At as many objects a second as now.",
        ),
        graph(
            "Bytes to an object", (mean("broker_wal_object_size_bytes", "{I}", "instance"), "{{instance}}"),
            unit="bytes", width=12, about="Requests are the fixed part: larger objects cost less for each byte.",
        ),
    ]),
    Row("What is paid for", [
        stack(
            "Requests to buckets", (rate("broker_objectstore_requests_total{I}", "operation"), "{{operation}}"),
            unit="reqps",
        ),
        stack(
            "Bytes from zone to zone, not through a bucket",
            (
                rate('broker_replication_bytes_total{T, path!="wal"}', "zone_from, zone_to"),
                "{{zone_from}} > {{zone_to}}",
            ),
            unit="Bps",
        ),
        stack(
            "Bytes from zone to zone, through buckets",
            (
                rate('broker_replication_bytes_total{T, path="wal"}', "zone_from, zone_to"),
                "{{zone_from}} > {{zone_to}}",
            ),
            unit="Bps",
        ),
        graph(
            "Kept in fast buckets", ("sum by (instance) (broker_wal_objects_live_bytes{I})", "{{instance}}"),
            unit="bytes",
        ),
        graph("Kept in tiered storage", ("sum by (topic) (TOPIC_remotelogsizebytes{T})", "{{topic}}"), unit="bytes"),
    ]),
])

BOARDS: Final = (CLUSTER, WAL, TIERING, COST)
