"""What a client is told when its request cannot be answered, in the form of the protocol it speaks.

One line with the numbers; never a traceback.
"""

from __future__ import annotations

from typing import Any, Final

from q35chat.errors import CapacityError, PictureError, Q35Error, UsageError

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
ANTHROPIC: Final = "/v1/messages"
"""Paths that begin so have errors of Anthropic's form."""


class RefusedError(Q35Error):
    """A request is refused with the HTTP `status`; `code` is OpenAI's word for why, `param` the
    field that is wrong, `retry_after` the seconds after which it may be sent again."""

    def __init__(
        self,
        what: str,
        status: int = 400,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(what)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    def body(self, path: str) -> dict[str, Any]:
        """What the response to a request for `path` says."""
        kind = _TYPES.get(self.status, "api_error" if self.status >= 500 else "")
        kind = kind or "invalid_request_error"
        if path.startswith(ANTHROPIC):
            return {"type": "error", "error": {"type": kind, "message": str(self)}}
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def too_long(error: CapacityError) -> RefusedError:
    """A conversation that has more tokens than there are slots."""
    return RefusedError(str(error), code="context_length_exceeded", param="messages")


def problem_of(error: Exception) -> RefusedError:
    """What to say of whatever was raised; of what nobody foresaw, only its kind."""
    match error:
        case RefusedError():
            return error
        case CapacityError():
            return too_long(error)
        case PictureError() | UsageError():
            return RefusedError(str(error))
        case Q35Error():
            return RefusedError(str(error), 500, code="server_error")
        case _:
            return RefusedError(
                f"unexpected {type(error).__name__}; the server's log has more",
                500,
                code="server_error",
            )
