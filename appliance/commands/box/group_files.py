"""The files of a new group: for each member a folder with its certificates and its configuration."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.group_settings import BROKER_BELOW, GroupMember, member_given
from appliance.errors import ConfigError, ConfigProblem
from uplink_spark.errors import ConfigError as CertificateError

INSTALLED = "/etc/rocketbox/keys"
USUAL_PORT = 10911
TRIAL = "\n[store]\nsegment_mib = 64  # small, for a trial: each box takes the room of one segment at once\n"


def write_group(folder: Path, group: str, texts: Sequence[str], *, here: bool) -> Iterator[str]:
    """Write certificates and configurations; yield a line on each member. Raises ConfigError.

    here: the certificates are used where they are written.
    """
    members = [member_given(text, "group init", "NAME=HOST:PORT") for text in texts]
    boxes = {
        box.name: configuration(group, box, texts, str((folder / box.name / "keys").absolute()) if here else INSTALLED)
        + (TRIAL if here else "")
        for box in members
        if not box.witness
    }
    for name, text in boxes.items():
        load_config(text, source=name, facts=HostFacts(1 << 40, "", group))  # before anything is written
    make_certificates(folder, group, [member.name for member in members])
    for member in members:
        found = boxes.get(member.name)
        if found is not None:
            yield _box(folder, member, found, here=here)
        elif here:
            certs, host = folder / member.name / "keys", f" --host {member.host}"  # the boxes have the same port
            yield f"{member.name}: {_witness_command(group, member.name, texts, certs, host, data=member.name)}"
        else:
            yield witness_told(group, member, texts, folder=folder)
    yield f"keep {folder / 'ca.key'} where no box is: who has it makes members"


def make_certificates(folder: Path, group: str, members: Sequence[str], *, keep: bool = False) -> None:
    """Make a CA, unless there is one, and `<member>/keys` for each member. Raises ConfigError.

    keep: a certificate that is valid for a month yet stays.
    """
    try:
        from uplink_spark.centre.certs import make_ca, make_member, member_fits
    except ModuleNotFoundError as exc:
        step = "makes certificates, which no box does: run it where the gateway's package is (pip install 'rocketbox')"
        raise ConfigError("group init", [ConfigProblem("group init", "", step, None)]) from exc
    try:
        make_ca(folder)
        for member in members:
            keys = folder / member / "keys"
            keys.mkdir(parents=True, exist_ok=True)
            (keys / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
            if not (keep and member_fits(keys, group, member)):
                make_member(keys, group, member, ca=folder)
    except (CertificateError, OSError) as exc:
        raise ConfigError("group init", [ConfigProblem("--dir", str(folder), str(exc), None)]) from exc


def configuration(group: str, box: GroupMember, texts: Sequence[str], certs: str) -> str:
    """Return the TOML of one box."""
    by_hand = 'elections = "manual"\n' if len(texts) == 2 else ""
    port = box.port - BROKER_BELOW
    listen = f'[listen]\nhost = "{box.host}"\n' + (f"broker_port = {port}\n" if port != USUAL_PORT else "")
    listed = ", ".join(f'"{text}"' for text in texts)
    return (
        f'[box]\nname = "{group}"\n\n{listen}\n[replication]\nrole = "member"\n\n'
        f'[group]\nmember = "{box.name}"\nmembers = [{listed}]\n{by_hand}certs = "{certs}"\n'
    )


def _box(folder: Path, box: GroupMember, text: str, *, here: bool) -> str:
    path = folder / box.name / "rocketbox.toml"
    if path.exists():
        return f"{box.name}: {path} is there and stays as it is; new certificates are in {path.with_name('keys')}"
    path.write_text(text)
    if here:
        return f"{box.name}: rocketbox serve --config {path} --data {box.name}"
    return f"{box.name}: copy {path.parent}/* to {Path(INSTALLED).parent} of {box.host}"


def witness_told(
    group: str, witness: GroupMember, texts: Sequence[str], more: str = "", *, folder: Path = Path()
) -> str:
    """Return what is to be done where the witness runs."""
    command = _witness_command(group, witness.name, texts, Path("keys"), more)
    return f"{witness.name}: copy {folder / witness.name / 'keys'} to {witness.host} and run there\n  {command}"


def _witness_command(
    group: str, name: str, texts: Sequence[str], certs: Path, more: str = "", *, data: str = "votes"
) -> str:
    listed = " ".join(f'--member "{text}"' for text in texts)
    return f"rocketbox witness --group {group} --as {name} --data {data} --certs {certs}{more} {listed}"
