"""Exit codes of the commands: the table in docs/cli.md and at the end of `rocketbox COMMAND --help`."""

COMMON = {
    0: "done",
    1: "failed or not confirmed; one line on standard error says why and what helps",
    2: "wrong command line, or a file or folder that cannot be used",
    3: "nothing found",
    130: "interrupted",
}
BENCH = {
    0: "done",
    2: "wrong command line, or the plan was not confirmed",
    3: "E1xx: no box found, several boxes, port busy, noise on the line",
    4: "E2xx: unclaimed, another owner, authentication",
    5: "E3xx: space, read-back, signature, model, version",
    6: "E4xx: configuration, serial number",
    7: "E5xx: self-test",
}
OWN: dict[str, dict[int, str]] = {  # of commands whose codes differ from the common ones
    "serve": {
        0: "stopped by a signal",
        2: "wrong command line, or a port is taken",
        74: "the data folder cannot be read or written",
        75: "another process uses the data folder",
        78: "wrong configuration",
        79: "too many exits in a short time; systemd escalates",
    },
    "status": {
        0: "ok",
        1: "starting or degraded",
        2: "any other state, or no box runs; with --serving 0 for ok and degraded, else 1",
    },
    "doctor": {0: "nothing wrong", 1: "warnings", 2: "errors, or the diagnosis cannot run"},
    "selftest": {0: "passed", 7: "a step failed, or wrong configuration"},
    "config": {0: "done", 2: "wrong command line", 78: "wrong configuration"},
    "namesrv": {0: "done", 2: "wrong command line", 78: "wrong configuration"},
    "fsck": {0: "nothing wrong", 1: "findings", 2: "the folder cannot be checked"},
    "loss": {0: "no loss, or acknowledged", 1: "losses to acknowledge", 2: "the acknowledgement failed"},
    "provision": BENCH,
    "fleet": BENCH,
    "flash": BENCH,
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
