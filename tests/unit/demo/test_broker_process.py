import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from broker.demo.broker_process import BrokerProcess, broker_command, broker_environment
from tests.support.patience import until


def _python(tmp_path: Path, code: str) -> BrokerProcess:
    return BrokerProcess([sys.executable, "-c", textwrap.dedent(code)], tmp_path / "log", os.environ)


def _wait_for(path: Path, text: str) -> None:
    until(lambda: path.exists() and text in path.read_text(), f"{text} in {path.name}")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_the_command_is_a_server_of_this_very_python(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.properties"
    assert broker_command(file) == [sys.executable, "-m", "broker", "server", str(file)]


def test_settings_of_the_environment_are_for_one_broker_and_kept_from_all() -> None:
    assert broker_environment({"WHERRY_NODE_ID": "7", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_it_says_into_its_log_and_may_be_started_again(tmp_path: Path) -> None:
    process = _python(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (process.pid, process.is_running, process.exit_code) == (None, False, None)
    for _ in range(2):
        process.start()
        until(lambda: not process.is_running, "it ends")
    log = (tmp_path / "log").read_text()
    assert process.exit_code == 3
    process.stop()
    assert log.count("out") == log.count("err") == 2


WAITS = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("ready", flush=True)
    time.sleep(3600)
"""


def test_it_is_asked_to_stop(tmp_path: Path) -> None:
    process = _python(tmp_path, WAITS)
    process.start()
    _wait_for(tmp_path / "log", "ready")
    assert os.getsid(process.pid or 0) == process.pid, "Ctrl-C is not for it"
    process.stop()
    until(lambda: not process.is_running, "it ends")
    assert process.exit_code == 5


def test_kill_waits_for_the_end(tmp_path: Path) -> None:
    process = _python(tmp_path, WAITS)
    process.start()
    process.kill()
    assert (process.is_running, process.exit_code) == (False, -signal.SIGKILL)


PARENT = """
    import os, sys, time
    from pathlib import Path
    from broker.demo.broker_process import BrokerProcess
    child = BrokerProcess([sys.executable, "-c", sys.argv[2]], Path(sys.argv[1]), os.environ)
    child.start()
    print(child.pid, flush=True)
    time.sleep(3600)
"""


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path / "log"), textwrap.dedent(WAITS)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        _wait_for(tmp_path / "log", "ready")
        assert _is_alive(child)
        parent.kill()
    until(lambda: not _is_alive(child), "it ends")
