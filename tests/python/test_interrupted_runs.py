"""What a run leaves when it is interrupted or killed: the exit code, what the run store says, no processes, no temporary files; and what happens
when somebody changes the output folder before it goes on."""

import os
import shutil
import signal
import subprocess

import pytest

from test_cli_errors import (BINARY, GOOD, bundle, cli, events, hanging, home, processes_that_mention, run_and_kill, start_into,  # noqa: F401
                             temporary_files, verdict_of, wait_until)


@pytest.fixture
def temporary(tmp_path, monkeypatch, cli):  # noqa: F811
    """A folder of its own for temporary files, so that what others do in /tmp does not matter."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setitem(cli.env, "TMPDIR", str(folder))
    return folder


def newest_run(cli):  # noqa: F811
    return cli("runs", "list", "--limit", "1").stdout.splitlines()[-1]


@pytest.mark.parametrize("step", ["build", "verify"])
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(which, step, cli, hanging, temporary, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out, "--json"]
    p = start_into(cli, args, out, hanging, step)
    assert " running " in newest_run(cli)
    p.send_signal(which)
    _, stderr = p.communicate()
    assert p.returncode == 128 + which
    assert stderr.splitlines()[-1] == "Interrupted. Run the same command again to go on from the last finished step."
    assert not any(word in stderr for word in ("failed", "ended", "killed"))  # the compiler's or worker's end is no news
    wait_until(lambda: not processes_that_mention(hanging))  # the kernel takes a moment for what a child has started
    assert os.listdir(temporary) == [] and not temporary_files(out)
    assert " interrupted " in newest_run(cli)
    known = len(events(out))
    verdict_of(cli(*args))
    assert next(e["text"] for e in events(out)[known:] if e["event"] == "run_resumed") == f"going on with {step}"
    assert " done " in newest_run(cli)
    assert os.listdir(temporary) == []


def test_a_killed_run_is_not_running_and_its_temporary_files_go_with_the_next(cli, hanging, temporary, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out, "--json"]
    assert run_and_kill(cli, args, out, hanging, "build")
    assert " interrupted " in newest_run(cli)
    assert os.listdir(temporary)
    verdict_of(cli(*args))
    assert os.listdir(temporary) == []


def test_changed_outputs_are_made_again(cli, hanging, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    args = ["run", bundle(tmp_path), "--target", "host", "--out", out, "--json"]

    def edit(path):
        path.write_text(path.read_text().replace("float", "double") + "\n")

    changes = [
        (lambda: edit(out / "kernels.cu"), "going on with code, because kernels.cu was changed"),
        (lambda: (out / "plan.json").unlink(), "going on with plan, because plan.json is missing"),
        (lambda: shutil.rmtree(out / "include"), "going on with code, because "),
        (lambda: (out / "program_host.so").write_bytes(b"no library"), "going on with build, because program_host.so was changed"),
        (lambda: shutil.rmtree(out), "going on with plan, because plan.json is missing"),  # the bundle is elsewhere
    ]
    for change, text in changes:
        assert run_and_kill(cli, args, out, hanging, "verify")
        change()
        before = len(events(out))
        assert run_and_kill(cli, args, out, hanging, "verify")
        resumed = [e["text"] for e in events(out)[before:] if e["event"] == "run_resumed"]
        assert resumed and resumed[0].startswith(text), (resumed, text)
    verdict_of(cli(*args))
    assert "no library" not in (out / "program_host.so").read_bytes().decode("latin1")


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_capture(which, cli, temporary, tmp_path):  # noqa: F811
    """Python is in the middle of the program; what it has half-written goes with it."""
    (tmp_path / "slow.py").write_text(GOOD + f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(1000)\n")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".x.stitch.left_over").mkdir()  # of a killed one
    p = subprocess.Popen([BINARY, "capture", str(tmp_path / "slow.py"), "-o", str(tmp_path / "new/x.stitch")], env=cli.env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until((tmp_path / "begun").exists)
    (tmp_path / "new" / ".x.stitch.half").mkdir()
    p.send_signal(which)
    _, stderr = p.communicate()
    assert p.returncode == 128 + which and stderr.strip() == "Interrupted."
    wait_until(lambda: not processes_that_mention(tmp_path))
    assert os.listdir(temporary) == [] and os.listdir(tmp_path / "new") == []
