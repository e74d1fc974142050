"""Where values come from: a Java properties file, the environment, the command line; later ones win."""

from collections.abc import Iterable, Iterator, Mapping
from string import hexdigits
from typing import Final

from broker.config.setting import ConfigError

ENVIRONMENT_PREFIX: Final = "WHERRY_"

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The properties of a text in Java's format (java.util.Properties.load); a later line of the same name wins.

    Comments with `#` or `!`, keys ended by `=`, `:` or blanks, backslash escapes, continued lines.
    """
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """The same in reverse: a text that `parse_properties`, and Java, read back equal."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in properties.items()]
    return "".join(line + "\n" for line in lines)


def from_environment(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The settings given by variables: `WHERRY_LOG_SEGMENT_BYTES` is `log.segment.bytes`.

    A variable that is no name of ours is taken as it reads, and so ends up among the unknown names.
    """
    by_variable = {variable_name(name): name for name in names}
    return {
        by_variable.get(variable, variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")): value
        for variable, value in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX)
    }


def variable_name(setting_name: str) -> str:
    return ENVIRONMENT_PREFIX + setting_name.replace(".", "_").upper()


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """The `name=value` arguments of `--override`."""
    properties = {}
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {override!r}: expected name=value.")
        properties[name.strip()] = value.strip()
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, continued lines joined."""
    continued = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if not continued and (not line or line[0] in "#!"):
            continue
        line = continued + line
        continued = ""
        if _ends_in_continuation(line):
            continued = line[:-1]
        else:
            yield line
    if continued:
        yield continued


def _ends_in_continuation(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """A key ends at the first unescaped separator; around `=` or `:` blanks are dropped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    result, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            if character != "\\":
                result.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not set(digits) <= set(hexdigits):
                raise ConfigError(f"\\u{digits}: expected four hexadecimal digits.")
            result.append(chr(int(digits, 16)))
            position += 4
        else:
            result.append(_ESCAPES.get(escaped, escaped))
    # Java writes characters beyond the first plane as two escaped units.
    return "".join(result).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    result = []
    for index, character in enumerate(text):
        if character in "\\=:#!" or (character == " " and (is_key or index == 0)):
            result.append("\\" + character)
        elif character in "\t\n\r\f":
            result.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[character])
        elif not " " <= character <= "~":
            result += [f"\\u{unit:04X}" for unit in _utf16_units(character)]
        else:
            result.append(character)
    return "".join(result)


def _utf16_units(character: str) -> Iterator[int]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return (encoded[index] << 8 | encoded[index + 1] for index in range(0, len(encoded), 2))
