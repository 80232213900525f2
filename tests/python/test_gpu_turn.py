"""Turns at a GPU's memory: never more than there is, and a process that dies gives back what it held."""

import multiprocessing
import os
import signal
import time

from stitchcuda.gpu_turn import PIECE, turn

PIECES = 6


def user(folder, size, count, now, most):
    for _ in range(count):
        with turn(folder, PIECES, size):
            taken = min(PIECES, max(1, -(-size // PIECE)))
            with now.get_lock():
                now.value += taken
                most.value = max(most.value, now.value)
            time.sleep(0.002)
            with now.get_lock():
                now.value -= taken


def hold(folder, ready):
    with turn(folder, PIECES, 100 * PIECE):
        ready.set()
        time.sleep(60)


def test_all_get_their_turn_and_the_sum_stays_within_the_gpu(tmp_path):
    now, most = multiprocessing.Value("i", 0), multiprocessing.Value("i", 0)
    sizes = [0, PIECE, PIECE + 1, 3 * PIECE, 5 * PIECE, 50 * PIECE]
    processes = [multiprocessing.Process(target=user, args=(str(tmp_path), s, 15, now, most)) for s in sizes]
    for p in processes:
        p.start()
    for p in processes:
        p.join(60)
        assert p.exitcode == 0
    assert now.value == 0 and 1 < most.value <= PIECES


def test_a_dead_holder_gives_its_pieces_back(tmp_path):
    ready = multiprocessing.Event()
    holder = multiprocessing.Process(target=hold, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(30)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    started = time.monotonic()
    with turn(str(tmp_path), PIECES, 6 * PIECE):
        assert time.monotonic() - started < 10
