from broker.common.observations import Observations


def test_values_are_counted_and_summed_and_the_largest_is_kept() -> None:
    seen = Observations()
    assert (seen.count, seen.total, seen.maximum) == (0, 0.0, 0.0)
    for value in (2.0, 5.0, 1.0):
        seen.observe(value)
    assert (seen.count, seen.total, seen.maximum) == (3, 8.0, 5.0)


def test_a_sink_gets_what_is_seen_from_then_on() -> None:
    seen = Observations()
    seen.observe(1.0)
    elsewhere: list[float] = []
    seen.sink = elsewhere.append
    seen.observe(2.0)
    assert elsewhere == [2.0]
