"""Turns at a GPU's memory, shared with src/run/gpu_memory.cpp: pieces of 4 GiB, each a locked file, so that a process that dies
gives back what it held."""

import contextlib
import fcntl
import os
import time

PIECE = 4 << 30


def _lock(path, wait):
    """A descriptor that holds the lock, or None where another process has it and `wait` is false."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return fd
    except BlockingIOError:
        os.close(fd)
        return None


@contextlib.contextmanager
def turn(folder, pieces, size):
    """Holds `size` bytes of a GPU with `pieces` pieces in all; more than all of them waits for all."""
    wanted = min(pieces, max(1, -(-size // PIECE)))
    held = {}
    try:
        queue = _lock(os.path.join(folder, "queue"), True)  # two that each hold half of what the other needs would wait for ever
        try:
            while len(held) < wanted:
                for i in range(pieces):
                    if len(held) < wanted and i not in held and (fd := _lock(os.path.join(folder, f"piece{i}"), False)) is not None:
                        held[i] = fd
                if len(held) < wanted:
                    time.sleep(0.02)
        finally:
            os.close(queue)
        yield
    finally:
        for fd in held.values():
            os.close(fd)
