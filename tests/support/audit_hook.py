"""What a process may not do while it looks at hostile files: an audit hook that writes down every such deed.

Imported under the name `sitecustomize` it watches each Python process that has its folder on the path, children too;
deeds go to the file `deeds` in that folder. It needs nothing but Python.
"""

from __future__ import annotations

import os
import sys

MARK = "embasis_hostile_mark"
NEVER = (
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
    "socket.", "ftplib.", "smtplib.", "telnetlib.", "http.client.", "urllib.", "webbrowser.", "code.__new__",
)  # fmt: skip
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
OUR_PROGRAMS = ("embasis/data/worker.py", "embasis.weights.torch_import_worker")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOTS = tuple({sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)})


class Watch:
    """The state of the hook: where files may change, and which made-up file names compiled code may have."""

    armed = True
    learning = False
    inside = ""
    code = ("<frozen ", "<attrs ", "<string>")
    learned: set[str] = set()  # noqa: RUF012 — one watch a process
    deeds: list[str] = []  # noqa: RUF012


def note(deed: str) -> None:
    Watch.deeds.append(deed)
    handle = os.open(os.path.join(HERE, "deeds"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(handle, (deed + "\n").encode("utf-8", "backslashreplace"))
    os.close(handle)


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """Called by Python at every event; must not raise."""
    if not Watch.armed:
        return
    Watch.armed = False  # what is done here is no deed
    try:
        deed = judge(event, arguments)
        if deed:
            note(deed)
    except Exception as error:
        note(f"the hook failed on {event}: {error!r}")
    finally:
        Watch.armed = True


def judge(event: str, arguments: tuple[object, ...]) -> str:
    """What is wrong with the event; nothing if nothing is."""
    if event.startswith(NEVER) and event != "socket.gethostname":
        return f"{event} {arguments!r:.200}"
    if event == "subprocess.Popen" and not any(str(word).endswith(OUR_PROGRAMS) for word in arguments[1]):  # type: ignore[attr-defined]
        return f"{event} {arguments!r:.200}"
    if event == "exec":
        return judge_code(arguments[0])
    # "<unknown>" is ast.parse: what it makes is looked at as data, and would be seen at "exec" if it were run
    if event == "compile" and MARK in str(arguments[0]) and arguments[1] != "<unknown>":
        return f"compiled a hostile text {arguments!r:.200}"
    if event == "open" and Watch.inside and isinstance(arguments[2], int):
        writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return outside(event, arguments[0]) if writes else ""
    if event in CHANGES and Watch.inside:
        return outside(event, arguments[0])
    return ""


def judge_code(code: object) -> str:
    """Code is of a file of Python's, of a package or of ours, or has a name that was there without hostile files."""
    name = str(getattr(code, "co_filename", ""))
    if MARK in "".join(texts(code)):
        return f"ran a hostile text in {name!r}"
    known = name.startswith((*ROOTS, *Watch.code)) or os.path.isfile(name) or name in Watch.learned
    if not known and Watch.learning:
        Watch.learned.add(name)
        return ""
    return "" if known else f"ran code that no file holds: {name!r}"


def texts(code: object) -> list[str]:
    found = [str(name) for name in getattr(code, "co_names", ())]
    for value in getattr(code, "co_consts", ()):
        found += texts(value) if hasattr(value, "co_consts") else [str(value)]
    return found


def outside(event: str, path: object) -> str:
    """A deed if the path is not below the folder where files may change."""
    if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
        return ""
    where = os.path.realpath(os.fsdecode(path))
    allowed = where.startswith((Watch.inside, HERE)) or where in ("/dev/null", "/dev/tty")
    return "" if allowed else f"{event} changed {where!r}"


if __name__ == "sitecustomize":
    sys.addaudithook(watch)
