"""`RemotingCommand`, what a frame says, in both header forms.

JSON is the default, the binary form is `ROCKETMQ`; an answer always goes back in the form of its request. Whatever a
client sends as an ext value (number, boolean) is text from here on, and every ext value written is a JSON string.
Source: RocketMQ 4.9.8 RemotingCommand, RocketMQSerializable, RemotingSerializable.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from netstack.errors import ProtocolError
from netstack.wire import fastjson
from netstack.wire.codes import ResponseCode
from netstack.wire.frame import BINARY, JSON, Frame, encode_frame_head

if TYPE_CHECKING:
    from netstack.wire.message_headers import SendMessageHeader

VERSION: Final = 409  # V4_9_8
FIRST_5X_VERSION: Final = 413  # V5_0_0
RESPONSE, ONEWAY = 1, 2
MAX_EXT_FIELDS: Final = 256
HEADER: Final = fastjson.Bounds(1 << 20, 40_000, 4 << 10, 0)  # commas in properties count; clients send standard JSON
LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
_LANGUAGE_CODES: Final = {name: code for code, name in enumerate(LANGUAGES)}
_FIXED, _SHORT, _INT = Struct(">hBhiii"), Struct(">h"), Struct(">i")
_MARKS: Final = Struct(">ii")
_DUMPS: Final = orjson.dumps
_TAIL: Final = b'"serializeTypeCurrentRPC":"JSON","version":%d}'
_ANY: Final = b'{"code":%d,%b"flag":%d,"language":"%b","opaque":%d,%b' + _TAIL
_ANSWER: Final = b'{"code":%d,"extFields":%b,"flag":1,"language":"JAVA","opaque":%d,' + _TAIL


class ExtFields(Protocol):
    """What can be turned into ext fields: every class of `headers`."""

    def to_ext(self) -> dict[str, str]: ...


class RemotingCommand:
    """A request or a response; what its header and its body say.

    `send` is what ext says, already read; then ext itself is empty.
    """

    __slots__ = ("body", "code", "ext", "flag", "language", "opaque", "remark", "send", "serialize_type", "version")

    def __init__(
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        language: str = "JAVA",
        version: int = VERSION,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        serialize_type: int = JSON,
        send: "SendMessageHeader | None" = None,
    ) -> None:
        self.code, self.opaque, self.flag, self.language, self.version = code, opaque, flag, language, version
        self.remark, self.body, self.serialize_type, self.send = remark, body, serialize_type, send
        self.ext: dict[str, str] = {} if ext is None else ext

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotingCommand) and self._values() == other._values()

    def _values(self) -> tuple[object, ...]:
        flags = self.code, self.opaque, self.flag, self.language, self.version, self.serialize_type
        return *flags, self.remark, self.ext, self.body, self.send

    def __repr__(self) -> str:
        said = f"code={self.code}, opaque={self.opaque}, flag={self.flag}, {self.language} {self.version}"
        return f"RemotingCommand({said}, remark={self.remark!r}, ext={self.ext}, body of {len(self.body)} bytes)"

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY != 0

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: Mapping[str, str] | ExtFields | None = None,
        body: bytes = b"",
    ) -> "RemotingCommand":
        """Return the answer to this request: same opaque, same header form."""
        return RemotingCommand(
            code, self.opaque, RESPONSE, "JAVA", VERSION, remark, ext_dict(ext), body, self.serialize_type
        )


def request(
    code: int,
    ext: Mapping[str, str] | ExtFields | None = None,
    body: bytes = b"",
    *,
    oneway: bool = False,
    language: str = "JAVA",
    version: int = VERSION,
) -> RemotingCommand:
    """Return a request in JSON form; whoever sends it gives it an opaque."""
    return RemotingCommand(code, 0, ONEWAY if oneway else 0, language, version, ext=ext_dict(ext), body=body)


def ext_dict(ext: Mapping[str, str] | ExtFields | None) -> dict[str, str]:
    if ext is None:
        return {}
    if isinstance(ext, dict):
        return ext
    return ext.to_ext() if hasattr(ext, "to_ext") else dict(ext)


def decode_command(frame: Frame, max_ext: int = MAX_EXT_FIELDS) -> RemotingCommand:
    """Return what the frame says. Raises ProtocolError."""
    kind, header, body = frame.kind, frame.header, frame.body
    if kind == BINARY:
        return _decode_binary(header, body, max_ext)
    if len(header) > HEADER.values and fastjson.values_in(header) > HEADER.values:
        raise ProtocolError(
            f"JSON header of up to {fastjson.values_in(header)} values, at most {HEADER.values} are allowed"
        )
    try:
        fields = orjson.loads(header)
        ext = fields.get("extFields") or {}
        "".join(ext.values())  # the cheapest proof that all values are text
        language = fields["language"]
        code, opaque, flag, version = fields["code"], fields["opaque"], fields["flag"], fields["version"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        fields = _lenient(header)
        ext, language = fields["extFields"], fields["language"]
        code, opaque, flag, version = fields["code"], fields["opaque"], fields["flag"], fields["version"]
    if not (type(code) is type(opaque) is type(flag) is type(version) is int):
        code, opaque, flag, version = (_integer(value) for value in (code, opaque, flag, version))
    if not (_is_int32(code) and _is_int32(opaque) and _is_int32(flag) and _is_int32(version)):
        raise ProtocolError(f"header numbers outside 32 bits: {code}, {opaque}, {flag}, {version}")
    if len(ext) > max_ext:
        raise ProtocolError(f"{len(ext)} ext fields, limit {max_ext}")
    if type(language) is not str or language not in _LANGUAGE_CODES:
        language = _language(language)
    remark = fields.get("remark")
    if remark is not None and type(remark) is not str:
        remark = _text(remark)
    return RemotingCommand(code, opaque, flag, language, version, remark, ext, body, JSON)


def _is_int32(number: int) -> bool:
    return -0x80000000 <= number <= 0x7FFFFFFF


def _lenient(header: bytes) -> dict[str, Any]:
    """Return the fields of a header that is not as Java writes it: absent ones as None, ext values as text."""
    read = fastjson.loads(header, HEADER)
    if type(read) is not dict:
        raise ProtocolError(f"JSON header is {type(read).__name__}, not an object")
    ext = read.get("extFields") or {}
    if type(ext) is not dict:
        raise ProtocolError(f"extFields is {type(ext).__name__}, not an object")
    fields = {name: read.get(name) for name in ("code", "opaque", "flag", "version", "language", "remark")}
    return {**fields, "extFields": {str(key): _text(value) for key, value in ext.items() if value is not None}}


def encode_command(command: RemotingCommand) -> bytes:
    """Return the whole frame."""
    return encode_head(command) + command.body


def encode_head(command: RemotingCommand) -> bytes:
    """Return the frame without its body."""
    body_bytes = len(command.body)
    if command.serialize_type == BINARY:
        return encode_frame_head(BINARY, _encode_binary(command), body_bytes)
    ext, remark, flag = command.ext, command.remark, command.flag
    if flag == RESPONSE and remark is None and ext and command.language == "JAVA":  # most answers
        header = _ANSWER % (command.code, _json(ext), command.opaque, command.version)
    else:
        header = _ANY % (
            command.code,
            b'"extFields":%b,' % _json(ext) if ext else b"",
            flag,
            command.language.encode(),
            command.opaque,
            b"" if remark is None else b'"remark":%b,' % _json(remark),
            command.version,
        )
    size = len(header)
    return _MARKS.pack(4 + size + body_bytes, size) + header


def _json(value: object) -> bytes:
    try:
        return _DUMPS(value)
    except orjson.JSONEncodeError:
        return fastjson.dumps(value)


def _text(value: Any) -> str:
    """Return the JSON spelling of a value that should have been a string."""
    return value if type(value) is str else fastjson.dumps(value).decode()


def _integer(value: Any) -> int:
    """Return what Java's decoder makes of it: numeric text counts, null and absent are 0."""
    if value is None:
        return 0
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ProtocolError(f"header number {str(value)[:40]!r}") from None


def _language(value: Any) -> str:
    if type(value) is str and value in _LANGUAGE_CODES:
        return value
    if type(value) is int and 0 <= value < len(LANGUAGES):
        return LANGUAGES[value]
    name = str(value).upper()
    return name if name in _LANGUAGE_CODES else "OTHER"


def _decode_binary(header: bytes, body: bytes, max_ext: int) -> RemotingCommand:
    """Decode the binary header.

    0  i16  code      3  i16  version     9  i32  flag             17      n  remark    21 + n  entries:
    2  u8   language  5  i32  opaque     13  i32  n, remark bytes  17 + n  i32 m        i16 key, i32 value lengths
    """
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
        (ext_size,) = _INT.unpack_from(header, _FIXED.size + _inside(remark_size))
    except StructError:
        raise ProtocolError(f"binary header of {len(header)} bytes ends inside its fields") from None
    ext_at = _FIXED.size + remark_size + 4
    if ext_at + _inside(ext_size) > len(header):
        raise ProtocolError(f"binary ext fields of {ext_size} bytes in a header of {len(header)}")
    remark = header[_FIXED.size : _FIXED.size + remark_size].decode("utf-8", "replace") or None
    ext = _decode_entries(header, ext_at, ext_at + ext_size, max_ext)
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return RemotingCommand(code, opaque, flag, name, version, remark, ext, body, BINARY)


def _inside(size: int) -> int:
    if size < 0:
        raise ProtocolError(f"binary header holds length {size}")
    return size


def _decode_entries(header: bytes, at: int, end: int, max_ext: int) -> dict[str, str]:
    """Decode the ext fields; the last of equal keys counts, an empty value is an absent one."""
    ext: dict[str, str] = {}
    entries = 0
    while at < end:
        entries += 1
        key_end = at + 2 + int.from_bytes(header[at : at + 2], "big")
        value_at = key_end + 4
        value_end = value_at + int.from_bytes(header[key_end:value_at], "big")
        if value_end > end or value_at > end or entries > 2 * max_ext:  # Java writes fast fields twice when it signs
            raise ProtocolError(f"binary ext field {entries} ends at {value_end} of {end}, at most {max_ext} fields")
        key = header[at + 2 : key_end].decode("utf-8", "replace")
        if value_end > value_at:
            ext[key] = header[value_at:value_end].decode("utf-8", "replace")
        at = value_end
    if len(ext) > max_ext:
        raise ProtocolError(f"{len(ext)} ext fields, limit {max_ext}")
    return ext


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    parts = []
    for name, value in command.ext.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        parts.append(_SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text)
    entries = b"".join(parts)
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000  # Java truncates to 16 bits
    language = _LANGUAGE_CODES.get(command.language, _LANGUAGE_CODES["OTHER"])
    fixed = _FIXED.pack(code, language, command.version, command.opaque, command.flag, len(remark))
    return fixed + remark + _INT.pack(len(entries)) + entries
