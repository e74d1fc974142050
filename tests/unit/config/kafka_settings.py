"""Kafka's own settings, as its jars define them: what ours are compared with."""

from pathlib import Path
from typing import NamedTuple


class KafkaSetting(NamedTuple):
    name: str
    type: str
    default: str
    valid: str
    importance: str
    update: str


def read(section: str) -> dict[str, KafkaSetting]:
    """The settings of `broker` or `topic` by name."""
    settings, current = {}, ""
    for line in (Path(__file__).parent / "kafka_settings.tsv").read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif not line.startswith("#") and current == section:
            setting = KafkaSetting(*line.split("\t"))
            settings[setting.name] = setting
    return settings
