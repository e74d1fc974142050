"""Frames we cannot answer: the connection is closed, because an invented answer would desynchronise the client."""


class ProtocolError(Exception):
    """The peer does not speak the protocol, or not a part of it that we do."""


class MalformedFrameError(ProtocolError):
    """The bytes do not decode as what their header says they are."""


class UnsupportedApiError(ProtocolError):
    """A key or version that is not offered."""

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"api key {api_key} version {version} is not offered")
        self.api_key = api_key
        self.version = version
