"""What a terminal, a pipe or a full disk can do to a command, and what a command can do to a terminal."""

import ast
import fcntl
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from command_line import changed
from test_structure import FILES, module_of
from whole_run import RECIPE, finished

from grpo_kit.cli import main
from grpo_kit.console import Console
from grpo_kit.run.stop import listen_for_stop
from grpo_kit.terminal import Output, show, visible

COMMAND = [sys.executable, "-m", "grpo_kit"]
ATTACK = "\x1b]0;owned\x07\x1b[2J\r"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\r"


def outcome(*arguments: str, redirected: str = "", env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a shell's `grpo-kit ARGUMENTS REDIRECTED`."""
    line = f'"$@" {redirected}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "bash", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stdout, done.stderr


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def steps_of(run: str) -> int:
    file = Path("runs") / run / "metrics.jsonl"
    return file.read_text().count("\n") if file.is_file() else 0


def assert_stopped_and_saved(run: str, reason: str) -> None:
    """Each step that the log has is in a checkpoint."""
    summary = json.loads((Path("runs") / run / "summary.json").read_text())
    assert (summary["status"], summary["reason"]) == ("stopped", reason)
    assert (Path("runs") / run / "checkpoints" / f"checkpoint-{steps_of(run)}").is_dir()


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_there_is_one_way_to_the_terminal(path):
    """`show`: a bare print can fail, and passes on what a model or a reward has written."""
    if module_of(path) != "terminal":
        called = [
            ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        shows = ("print", "typer.echo", "click.echo", "traceback.print_exc", "traceback.print_exception", "tqdm.write")
        assert not [name for name in called if name in shows or name.startswith(("sys.stdout", "sys.stderr"))]


def test_a_control_character_is_shown_as_text_once():
    assert visible(f"a\n\tb{ATTACK}") == f"a\n\tb{SHOWN}"
    assert visible(visible(ATTACK)) == SHOWN
    assert visible("计算\u3000３＋４\u00a0＝") == "计算\u3000３＋４\u00a0＝"  # spaces, too


def test_a_line_is_one_write_so_that_those_of_several_processes_stay_whole(monkeypatch):
    written = []
    monkeypatch.setattr(os, "write", lambda descriptor, data: written.append(bytes(data)) or len(data))
    output = Output("<stderr>", os.open(os.devnull, os.O_WRONLY))
    stream = io.TextIOWrapper(output, "utf-8", line_buffering=True, write_through=True)
    monkeypatch.setattr(sys, "stderr", stream)
    show("one line", error=True)
    show("two\nlines", error=True)
    assert written == [b"one line\n", b"two\nlines\n"]
    os.close(output.descriptor)


def test_lines_and_errors_pass_through_visible(capsys, monkeypatch):
    show(ATTACK)
    Console().say(ATTACK)
    show(ATTACK, error=True)
    monkeypatch.setattr("grpo_kit.ask.ask_model", lambda *_, **__: ATTACK)
    finished("sums")
    with pytest.raises(SystemExit):
        main(["ask", "sums", "1+1?"])
    shown = capsys.readouterr()
    assert (shown.out.splitlines()[0], shown.out.splitlines()[-1]) == (SHOWN, SHOWN)
    assert shown.err.splitlines()[0] == SHOWN
    assert "\x1b" not in shown.out + shown.err


def test_a_column_with_an_escape_in_its_name_reaches_no_terminal(cli):
    Path("rows.jsonl").write_text(json.dumps({ATTACK: "x", "answer": "1"}) + "\n")
    assert f"columns: {SHOWN}" in cli.refuses()


@pytest.mark.slow
def test_what_a_reward_raises_reaches_no_terminal_nor_later_from_the_runs_files():
    """From its traceback, the error and the log; `check` would refuse a reward that raises before there is a run."""
    Path("rewards").mkdir()
    raising = f"if os.path.isdir('runs'):\n        raise ValueError({ATTACK!r})\n    return 0.0"
    Path("rewards/angry.py").write_text(f'"""."""\n\nimport os\n\n\ndef angry(completion):\n    {raising}\n')
    Path("sums.yaml").write_text(changed("accuracy: 1.0,", "accuracy: 1.0, angry: 0.1,", RECIPE))
    for arguments in (["run", "sums.yaml"], ["doctor", "sums"]):
        _, out, err = outcome(*arguments)
        assert rf"ValueError: {SHOWN[:-2]}" in out + err, out + err
        assert not {"\x1b", "\x07", "\r"} & set(out + err)


def test_doctor_shows_why_a_run_ended_as_text(capsys):
    finished("sums")
    Path("runs/sums/summary.json").write_text(json.dumps({"status": "failed", "reason": ATTACK}))
    with pytest.raises(SystemExit):
        main(["doctor", "sums"])
    assert f"ended        {SHOWN}\n" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["/dev/full", os.devnull, None])
def test_output_that_fails_raises_nothing(file, monkeypatch):
    """Also where `train` is called by a script, whose streams are its own."""
    with open(file, "w") if file else nullcontext() as taken, monkeypatch.context() as patch:
        if file == os.devnull:
            taken.close()
        patch.setattr(sys, "stdout", taken)
        Console().say("text")
        if file == "/dev/full":
            os.dup2(os.open(os.devnull, os.O_WRONLY), taken.fileno())  # what is held back, `close` would write


@pytest.mark.parametrize(
    ("redirected", "said"),
    [
        ("> /dev/full", "warning: standard output cannot be written (No space left on device): lines are missing\n"),
        (">&-", ""),
        ("2>&-", ""),
        ("<&- >&- 2>&-", ""),
        ("| true", ""),
        ("> /dev/full 2>&1", ""),
    ],
)
def test_commands_that_only_print_end_quietly(redirected, said):
    code, _, err = outcome("rewards", "list", redirected=redirected)
    assert (code, err) == (0, said)


def test_the_exit_code_is_the_commands_own_where_its_error_cannot_be_shown():
    assert outcome("check", "none.yaml", redirected="2> /dev/full")[0] == 2


def test_what_cannot_be_encoded_is_shown_as_escapes():
    Path("r.yaml").write_text(changed("{question}", "{question} 你好", RECIPE))
    code, out, err = outcome("check", "r.yaml", env={"PYTHONIOENCODING": "ascii"})
    assert (code, err) == (0, "")
    assert r"\u4f60\u597d" in out


def test_a_hangup_is_heard_once_and_not_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listen_for_stop() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.asked == 0
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with listen_for_stop() as stop:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)  # the kernel's and the shell's
            assert stop.asked == signal.SIGHUP
            with pytest.raises(SystemExit) as left:
                signal.raise_signal(signal.SIGTERM)
            assert left.value.code == 143
    finally:
        signal.signal(signal.SIGHUP, before)


LOUD = '"""It prints."""\n\n\ndef loud(completion):\n    print("x" * 20_000, flush=True)\n    return 0.0\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "said"),
    [
        ("> /dev/full", "warning: standard output cannot be written (No space left on device): lines are missing\n"),
        ("| head -1", "note: nobody reads standard output any more; it goes on without\n"),
        (">&-", ""),
    ],
)
def test_a_run_goes_on_where_nothing_can_be_shown(redirected, said):
    Path("rewards").mkdir()
    Path("rewards/loud.py").write_text(LOUD)
    Path("sums.yaml").write_text(changed("accuracy: 1.0,", "accuracy: 1.0, loud: 0.1,", RECIPE))
    code, _, err = outcome("run", "sums.yaml", redirected=redirected)
    summary = json.loads(Path("runs/sums/summary.json").read_text())
    assert (summary["status"], summary["steps"], code) == ("done", 4, int(summary["verdict"] == "not learned"))
    assert Path("runs/sums/final").is_dir()
    assert set(err.splitlines(keepends=True)) == ({said} if said else set())  # each worker says it of its own


@pytest.mark.slow
def test_a_stop_while_standard_output_blocks_saves_what_is_done():
    Path("sums.yaml").write_text(RECIPE)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    settings = ["grpo.max_steps=400", "grpo.save_steps=400"]
    process = subprocess.Popen([*COMMAND, "run", "sums.yaml", *settings], stdout=write, stderr=subprocess.PIPE)
    try:
        os.close(write)
        os.set_blocking(read, False)

        def blocks() -> bool:
            """Read until there are 3 steps, and no more: 4096 bytes are those of some 25 lines of steps."""
            if (done := steps_of("sums")) < 3:
                with suppress(BlockingIOError):
                    os.read(read, 4096)
                return False
            time.sleep(3)
            return steps_of("sums") == done

        until(blocks)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == b""
    finally:
        process.kill()
        os.close(read)
    assert_stopped_and_saved("sums", "SIGTERM")


@pytest.mark.slow
def test_a_terminal_that_hangs_up_stops_the_run_with_its_steps_saved():
    Path("sums.yaml").write_text(RECIPE)
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests themselves run under nohup
        os.execv(COMMAND[0], [*COMMAND, "run", "sums.yaml", "grpo.max_steps=400", "grpo.save_steps=400"])
    os.set_blocking(terminal, False)

    def three_steps() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        return steps_of("sums") >= 3

    try:
        until(three_steps)
    finally:
        os.close(terminal)  # the kernel sends SIGHUP; from now on writing there is an EIO
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 129
    assert_stopped_and_saved("sums", "SIGHUP")
