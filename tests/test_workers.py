"""Reward functions in processes of their own: what hangs, dies or eats memory costs its row and nothing else."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from processes import all_gone, marked, new_mark

from grpo_kit.rewards.call import Fault, RewardCall
from grpo_kit.rewards.workers import START_LIMIT_S, Workers

CODE = b"""
import os, sys, time

def reward(completion, **columns):
    if completion == "loops":
        while True:
            pass
    if completion == "sleeps":
        time.sleep(3600)
    if completion == "power":
        return 9 ** 9 ** 9 % 7  # C code that holds the interpreter's lock
    if completion == "deaf":
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if completion == "exits":
        os._exit(3)
    if completion == "exits with 0":
        os._exit(0)
    if completion == "killed":
        os.kill(os.getpid(), 9)
    if completion == "aborts":
        os.abort()
    if completion == "allocates 100 GB":
        return len(bytearray(100 * 2**30))
    if completion == "eats":
        eaten = []
        while True:
            eaten.append(bytes(2**28))
    if completion == "raises":
        raise ValueError("no")
    if completion == "its own kind":
        raise type("Own", (BaseException,), {})("mine")
    if completion == "interrupts":
        raise KeyboardInterrupt
    if completion == "leaves":
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
    if completion == "takes a while":
        time.sleep(0.3)
    if completion == "ends its own":
        import signal, subprocess
        child = os.fork()
        if not child:
            time.sleep(60)
        executed = subprocess.Popen(["sleep", "60"])
        time.sleep(0.2)
        executed.terminate()
        os.kill(child, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == -executed.wait()
        return float(signal.SIGTERM)
    if completion == "starts":
        import subprocess
        subprocess.run(["sleep", "3600"])
    if completion == "modules":
        return float("torch" in sys.modules)
    if completion == "folder":
        return float(os.path.exists("marker"))
    if completion == "pid":
        return os.getpid()
    return len(completion)
"""

LIMIT_S = 1.0


@pytest.fixture(scope="module")
def workers():
    some = Workers(2)
    yield some
    some.close()


def call(code: bytes = CODE, batch_form: bool = False) -> RewardCall:
    return RewardCall(Path("/nowhere/reward.py"), code, pickle.dumps({}), batch_form, os.getcwd())


def score(workers, *texts, limit_s=LIMIT_S):
    return workers.score(call(), [(text, {}) for text in texts], limit_s)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("loops", "timeout", "reward gave no result within 1 s"),
        ("sleeps", "timeout", "reward gave no result within 1 s"),
        ("power", "timeout", "reward gave no result within 1 s"),
        ("exits with 0", "died", "reward ended its process"),
        ("its own kind", "error", "reward raised Own: mine"),
        ("interrupts", "error", "reward raised KeyboardInterrupt: KeyboardInterrupt"),
        ("exits", "died", "reward ended its process (exit code 3)"),
        ("killed", "died", "reward ended its process (SIGKILL)"),
        ("aborts", "died", "reward ended its process (SIGABRT)"),
        ("allocates 100 GB", "memory", "reward ran out of memory"),
        ("eats", "memory", "reward ran out of memory"),
        ("raises", "error", "reward raised ValueError: no"),
    ],
)
def test_only_the_row_is_lost_and_within_its_limit(workers, text, kind, said):
    score(workers, "warm", "up")
    started = time.monotonic()
    scores = score(workers, "a", "bb", "ccc", text, "eeeee", "ffffff", "g")
    took = time.monotonic() - started
    fault = scores.pop(3)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.what) == (kind, said)
    assert scores == [1.0, 2.0, 3.0, 5.0, 6.0, 1.0]
    assert took < LIMIT_S + 1  # the promise; a machine that is three times as slow still keeps it
    assert score(workers, "next") == [4.0]


def test_several_bad_rows_each_cost_themselves(workers):
    scores = score(workers, "exits", "a", "loops", "bb", "loops", "exits", "ccc")
    assert [getattr(score, "kind", score) for score in scores] == ["died", 1.0, "timeout", 2.0, "timeout", "died", 3.0]


def test_a_worker_that_is_deaf_to_sigterm_is_ended(workers):
    [fault] = score(workers, "deaf")
    assert fault.kind == "timeout"
    assert score(workers, "next", "one", "two", "three") == [4.0, 3.0, 3.0, 5.0]


def test_many_slow_rows_are_shared_and_none_counts_for_another(workers):
    slow = b"import time\ndef reward(completion):\n    time.sleep(0.15)\n    return len(completion)\n"
    texts = ["x" * n for n in range(1, 11)]
    rows = [(text, {}) for text in texts]
    assert workers.score(call(slow), rows, 0.6) == [float(n) for n in range(1, 11)]  # 1.5 s in all


def test_workers_hold_no_torch_and_stand_where_their_parent_stands(workers, tmp_path):
    assert score(workers, "modules", "folder") == [0.0, 0.0]
    Path("marker").write_text("")
    assert score(workers, "folder") == [1.0]


def test_the_code_is_the_text_that_was_loaded(workers):
    assert workers.score(call(b"def reward(completion): return 1"), [("a", {})], LIMIT_S) == [1.0]
    assert workers.score(call(b"def reward(completion): return 2"), [("a", {})], LIMIT_S) == [2.0]


def test_a_batch_is_one_piece_of_work(workers):
    code = b"import time\ndef reward(completions, n):\n    time.sleep(max(n))\n    return [len(c) for c in completions]"
    both = [(["a", "bb"], {"n": [0, 0]})]
    assert workers.score(call(code, batch_form=True), both, LIMIT_S) == [[1.0, 2.0]]
    [fault] = workers.score(call(code, batch_form=True), [(["a", "bb"], {"n": [0, 60]})], LIMIT_S)
    assert fault == Fault("timeout", "reward gave no result within 1 s")


def test_an_import_has_time_of_its_own(workers):
    slow = b"import time\ntime.sleep(0.8)\ndef reward(completion): return 1"
    assert LIMIT_S > 0.5
    assert START_LIMIT_S > 60
    assert workers.score(call(slow), [("a", {}), ("b", {})], 0.5) == [1.0, 1.0]


def test_a_folder_that_is_gone_is_left(workers):
    assert score(workers, "leaves") == [6.0]
    assert score(workers, "a", "bb", "ccc") == [1.0, 2.0, 3.0]


def test_what_a_reward_started_ends_with_it():
    mark = new_mark()
    os.environ.update(mark)
    some = Workers(1)
    try:
        [fault] = score(some, "starts")
        assert fault.kind == "timeout"
        deadline = time.monotonic() + 5
        while any("sleep" in process.name() for process in marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any("sleep" in process.name() for process in marked(mark))
    finally:
        some.close()
        for name in mark:
            del os.environ[name]


def test_an_import_that_fails_only_in_a_worker_is_a_fault(workers):
    code = b"import multiprocessing\nassert multiprocessing.parent_process() is None\ndef reward(completion): return 1"
    [fault, other] = workers.score(call(code), [("a", {}), ("b", {})], LIMIT_S)
    assert fault == other
    assert fault.what == "reward cannot be imported in a worker: AssertionError: AssertionError"
    assert fault.where == "reward.py:2"


def test_nothing_to_do(workers):
    assert workers.score(call(), [], LIMIT_S) == []


def test_workers_are_deaf_to_ctrl_c():
    """A terminal sends it to every process of the foreground; only the run itself is to hear it."""
    mark = new_mark()
    os.environ.update(mark)
    some = Workers(2)
    try:
        before = set(score(some, *["pid"] * 40))
        for pid in before:
            os.kill(int(pid), signal.SIGINT)
        time.sleep(0.2)
        assert set(score(some, *["pid"] * 40)) <= before | set(map(float, psutil.pids()))
        assert all(psutil.pid_exists(int(pid)) for pid in before)
        assert len(marked(mark)) >= 2
    finally:
        some.close()
        for name in mark:
            del os.environ[name]
    assert all_gone({**mark}), [process.cmdline() for process in marked(mark)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_whole_job_costs_no_score(number):
    """A service manager or a scheduler sends it to every process; the run is to finish its step."""
    some = Workers(2)
    try:
        pids = {int(pid) for pid in score(some, *["pid"] * 40)}
        told = threading.Timer(0.2, lambda: [os.kill(pid, number) for pid in pids])
        told.start()
        assert score(some, *["takes a while"] * 4) == [13.0] * 4
        told.join()
        assert all(psutil.pid_exists(pid) for pid in pids)
    finally:
        some.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_a_reward_forks_or_executes_ends_when_it_is_told_to():
    some = Workers(1)
    try:
        assert score(some, "ends its own") == [float(signal.SIGTERM)]
    finally:
        some.close()


def test_closed_workers_start_anew():
    some = Workers(1)
    [first] = score(some, "pid")
    some.close()
    some.close()
    [second] = score(some, "pid")
    some.close()
    assert first != second
    assert not psutil.pid_exists(int(second))


def test_workers_that_die_while_they_wait_are_replaced():
    some = Workers(2)
    for pid in set(score(some, *["pid"] * 40)):
        os.kill(int(pid), signal.SIGKILL)
    time.sleep(0.5)
    assert score(some, "a", "bb") == [1.0, 2.0]
    some.close()


HUNG = """
import os, sys, threading
sys.path.insert(0, {tests!r})
from test_workers import CODE, call
from grpo_kit.rewards.workers import Workers
if __name__ == "__main__":
    work = [("power", {{}}), ("loops", {{}})]
    Workers(2).score(call(), work, 3600.0)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent_even_where_they_hang(ending):
    mark = new_mark()
    Path("hung.py").write_text(HUNG.format(tests=str(Path(__file__).parent)))
    parent = subprocess.Popen(
        [sys.executable, "hung.py"], env={**os.environ, **mark}, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where a shell runs us behind `&`
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while sum(process.cpu_times().user > 0.3 for process in marked(mark) if process.pid != parent.pid) < 2:
            assert time.monotonic() < deadline, "the workers never started"
            time.sleep(0.1)
        parent.send_signal(ending)
        parent.wait(timeout=20)
        assert all_gone(mark), [process.cmdline() for process in marked(mark)]
    finally:  # a test that fails leaves nothing running
        for process in marked(mark):
            process.kill()
