"""Expected failures of the capture worker. The message is one sentence for the user; it travels to C++ as JSON."""


class CaptureError(Exception):
    def __init__(self, kind: str, message: str, detail: str = ""):
        super().__init__(message)
        self.kind = kind  # "bad_input", "unsupported" or "environment"
        self.message = message
        self.detail = detail


def bad_input(message: str, detail: str = "") -> CaptureError:
    return CaptureError("bad_input", message, detail)


def unsupported(message: str, detail: str = "") -> CaptureError:
    return CaptureError("unsupported", message, detail)
