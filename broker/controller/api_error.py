"""ApiError: an error as a value, for answers that hold many."""

from typing import Final, NamedTuple

from broker.common.errors import ErrorCode, KafkaError


class ApiError(NamedTuple):
    """A code of the protocol and the sentence that goes with it."""

    code: ErrorCode
    message: str | None = None

    @property
    def is_failure(self) -> bool:
        return self.code is not ErrorCode.none

    @classmethod
    def of(cls, error: KafkaError) -> "ApiError":
        return cls(error.code, error.message)


NO_ERROR: Final = ApiError(ErrorCode.none)


class ApiException(KafkaError):
    """A KafkaError whose code is chosen where it is raised, for codes only the controller uses."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(*([] if message is None else [message]))
        self.code = code  # type: ignore[misc]  # per instance on purpose
