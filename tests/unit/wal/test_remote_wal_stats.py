from broker.wal.remote_wal_stats import RemoteWalStats, WalHop


def test_a_topic_has_one_set_of_counts_until_it_is_removed() -> None:
    stats = RemoteWalStats()
    stats.of("orders").copy_bytes += 7
    assert stats.of("orders").copy_bytes == 7
    assert stats.of("other").copy_bytes == 0
    stats.remove("orders")
    stats.remove("unknown")
    assert list(stats.topics) == ["other"]


def test_what_is_read_from_a_bucket_counts_by_who_uploaded_it() -> None:
    topic = RemoteWalStats().of("orders")
    topic.count_fetched(1, 100)
    topic.count_fetched(2, 30)
    topic.count_fetched(1, 5)
    assert topic.fetch_bytes == 135
    assert topic.fetch_bytes_from == {1: 105, 2: 30}


def test_a_cluster_of_senseless_broker_ids_does_not_fill_memory() -> None:
    topic = RemoteWalStats().of("orders")
    for broker_id in range(1500):
        topic.count_fetched(broker_id, 1)
    assert topic.fetch_bytes == 1500
    assert len(topic.fetch_bytes_from) == 1000


def test_hops_are_summed_and_passed_on() -> None:
    stats = RemoteWalStats()
    stats.hop(WalHop.PUT, 0.25)
    seen: list[float] = []
    stats.hops[WalHop.PUT].sink = seen.append
    stats.hop(WalHop.PUT, 0.5)
    stats.hop(WalHop.PUT, -0.1)  # the other broker's clock is ahead
    assert (stats.hops[WalHop.PUT].count, stats.hops[WalHop.PUT].total) == (3, 0.75)
    assert seen == [0.5, 0.0]
    assert stats.hops[WalHop.GET].count == 0


def test_objects_are_counted_with_their_sizes_and_slices() -> None:
    stats = RemoteWalStats()
    stats.object_size(300_000)
    stats.object_size(100_000)
    stats.slices_per_object(3)
    assert stats.objects_stored == 2
    assert (stats.object_sizes.count, stats.object_sizes.total) == (2, 400_000)
    assert (stats.slice_counts.count, stats.slice_counts.total) == (1, 3)
