"""Exit codes of the commands: the table in docs/cli.md and at the end of `rocketbox COMMAND --help`."""

COMMON = {
    0: "done",
    1: "failed or not confirmed; one line on standard error says why and what helps",
    2: "wrong command line, or a file or folder that cannot be used",
    3: "nothing found",
    130: "interrupted",
}
_ERRORS = {  # by the first digit of the E-code
    3: "E1xx: no box found, several boxes, port busy, noise on the line",
    4: "E2xx: unclaimed, another owner, authentication",
    5: "E3xx: space, read-back, signature, model, version",
    6: "E4xx: configuration, serial number",
    7: "E5xx: self-test",
}
BENCH = {0: "done", 2: "wrong command line, or the plan was not confirmed", **_ERRORS, 130: "interrupted"}
OWN: dict[str, dict[int, str]] = {  # of commands whose codes differ from the common ones
    "serve": {
        0: "stopped by a signal",
        2: "wrong command line, or a port is taken",
        74: "the data folder cannot be read or written, or its disk gave an error a minute ago and no watchdog runs",
        75: "another process uses the data folder, or the next start is to cut the log, or to take its copy anew",
        78: "wrong configuration",
        79: "too many exits in a short time; systemd escalates",
    },
    "status": {
        0: "ok",
        1: "starting or degraded",
        2: "wrong command line, any other state, or no box runs; with --serving 0 for ok and degraded, else 1",
    },
    "doctor": {0: "nothing wrong", 1: "warnings", 2: "errors, wrong command line, or the diagnosis cannot run"},
    "selftest": {0: "passed", 2: "wrong command line", 7: "a step failed, or wrong configuration"},
    "config": {0: "done", 2: "wrong command line", 78: "wrong configuration"},
    "namesrv": {
        0: "done",
        2: "wrong command line",
        78: "wrong configuration",
        255: "the file does not exist, as mqnamesrv exits",
    },
    "fsck": {0: "nothing wrong", 1: "findings", 2: "wrong command line, or the folder cannot be checked"},
    "loss": {
        0: "no loss, or acknowledged",
        1: "losses to acknowledge",
        2: "wrong command line, or the losses cannot be read or acknowledged",
    },
    "uplink": {
        0: "done; with status and test: the uplink works",
        1: "the box cannot be asked, refuses, or it was not confirmed",
        2: "wrong command line",
        10: "with status and test: the uplink does not work",
    },
    "replica": {
        0: "done",
        1: "the box cannot be asked, or it was not confirmed",
        2: "wrong command line, or the box refuses; one line on standard error says why and what helps",
    },
    "group": {
        0: "done",
        1: "the box cannot be asked, or it was not confirmed",
        2: "wrong command line or members, or the box refuses; one line on standard error says why and what helps",
    },
    "witness": {
        0: "stopped by a signal",
        2: "wrong command line, or the port is taken",
        74: "the folder of the votes cannot be read or written",
        78: "wrong members or certificates, or votes that cannot be trusted",
    },
    "support": {
        0: "done",
        1: "the file cannot be written",
        2: "wrong command line",
        **{code: f"with --over-serial, {meaning}" for code, meaning in _ERRORS.items() if code != 6},
    },
    "update": {
        0: "installed",
        2: "wrong command line, not root, or the disk or stick fails",
        5: _ERRORS[5],
    },
    "factory": {0: "done", 2: "wrong command line", 6: "E4xx: serial number", 7: "E5xx: disk or memory, or not root"},
    "device": {
        0: "the line is gone, or interrupted",
        2: "wrong command line, or a folder or port that cannot be used",
        3: "E1xx: the port cannot be opened",
    },
    "provision": BENCH,
    "fleet": BENCH,
    "flash": {code: meaning for code, meaning in BENCH.items() if code != 6},
}


def table() -> str:
    """Return the table of docs/cli.md."""
    rows = [_row("every other command", COMMON), *(_row(f"`{name}`", codes) for name, codes in OWN.items())]
    return "\n".join(["| command | exit codes |", "| --- | --- |", *rows]) + "\n"


def epilog(name: str) -> str:
    """Return the exit codes of one command for its help."""
    codes = OWN.get(name, COMMON)
    return "\n  ".join(["exit codes:", *(f"{code:<4} {meaning}" for code, meaning in codes.items())])


def _row(name: str, codes: dict[int, str]) -> str:
    return f"| {name} | " + " · ".join(f"{code} {meaning}" for code, meaning in codes.items()) + " |"
