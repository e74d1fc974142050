"""The configuration of a command: built-in default < properties file < environment < --override."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.properties import from_environment, parse_overrides, parse_properties
from broker.config.setting import ConfigError

log = structlog.get_logger(__name__)


def add_override_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set one property; may be repeated, and wins over the file and the environment",
    )


def load_config(file: Path | None, environment: Mapping[str, str], overrides: Iterable[str]) -> BrokerConfig:
    """The values to run with; without a file those of a cluster of one on this machine.  ConfigError when wrong."""
    properties = dict(DEFAULT_SINGLE_NODE) if file is None else _read(file)
    names = [setting.name for setting in BrokerConfig.settings()]
    properties |= from_environment(environment, names)
    properties |= parse_overrides(overrides)
    return BrokerConfig(properties)


def warn_of_unknown_names(config: BrokerConfig) -> None:
    """One warning with all names that nobody knows, and one quiet line with those that do nothing here."""
    if config.unknown_names:
        log.warning("unknown_settings", names=list(config.unknown_names))
    if config.ignored_names:
        log.info("settings_without_effect", names=list(config.ignored_names))


def _read(file: Path) -> dict[str, str]:
    try:
        return parse_properties(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not a UTF-8 text file.") from error
