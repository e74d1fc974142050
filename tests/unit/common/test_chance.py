from broker.common.chance import Chance
from broker.common.identifiers import uuid_to_text


def test_a_seed_repeats_every_choice() -> None:
    def choices(chance: Chance) -> tuple[object, ...]:
        items = list(range(10))
        chance.shuffle(items)
        return chance.random(), chance.below(1000), items, chance.uuid()

    assert choices(Chance(5)) == choices(Chance(5))
    assert choices(Chance(5)) != choices(Chance(6))


def test_without_a_seed_one_is_made_and_told() -> None:
    made = Chance()
    assert Chance(made.seed).uuid() == made.uuid()


def test_numbers_stay_below_their_bound() -> None:
    chance = Chance(1)
    assert {chance.below(3) for _ in range(100)} == {0, 1, 2}
    assert all(0 <= chance.random() < 1 for _ in range(100))


def test_uuids_are_ones_kafka_accepts() -> None:
    chance = Chance(1)
    uuids = [chance.uuid() for _ in range(500)]
    assert len(set(uuids)) == 500
    assert all(value.version == 4 and not uuid_to_text(value).startswith("-") for value in uuids)
