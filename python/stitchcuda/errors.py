"""Errors a user can act on. `kind` is the C++ ErrorKind of the same name."""

import os
import traceback

import torch

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CaptureError(Exception):
    """bad_input: the user's program is wrong; unsupported: a program we cannot capture; environment: this machine."""

    def __init__(self, kind, message, detail=""):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.aten_ops = []  # of the exported program, where it came that far

    def as_json(self):
        return {"kind": self.kind, "message": self.message, "detail": self.detail, "aten_ops": self.aten_ops}


def is_user_file(file):
    """False for PyTorch's own files, ours, and the standard library's frozen modules."""
    path = os.path.abspath(file)
    return not (path.startswith((_TORCH_FOLDER, _OWN_FOLDER)) or file.startswith("<frozen") or file == "<string>"
                or os.sep + "lib" + os.sep + "python3" in path and os.sep + "site-packages" + os.sep not in path)


def user_line(error):
    """'model.py:41' of the innermost frame of the user's code in the error's traceback, "" if there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def at_line(error):
    line = user_line(error)
    return f" at {line}" if line else ""


def one_line(error, limit=300):
    """The first sentence-like line of an exception's text, with its type."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def detail_of(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[-20000:]
