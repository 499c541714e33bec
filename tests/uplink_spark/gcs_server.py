"""A server of Google Cloud Storage for tests, in memory: python gcs_server.py HOST PORT BUCKET.

It has what the libraries here ask of both interfaces, as Google documents them. XML (delta-rs and obstore): objects
with ranges, `x-goog-if-generation-match`, multipart uploads, listings of version 2 in pages. JSON (Arrow): objects,
resumable uploads, listings in pages. A condition and the write behind it are one step, a listing shows every write
before it, and an object is there as a whole. It asks for no account and makes no CRC-32C.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE = 1000  # names of a listing at once, as Google's
RANGE = re.compile(r"bytes=(\d*)-(\d*)")
LAST_BYTES = re.compile(r"bytes (?:\d+-\d+|\*)/(\d+)")  # of a resumable upload; before them the length is `*`
JSON = re.compile(r"(?P<upload>/upload)?/storage/v1/b/(?P<bucket>[^/]+)(?P<list>/o(?:/(?P<key>[^/]+))?)?")


class Stored(NamedTuple):
    """An object as it is at one generation."""

    data: bytes
    generation: int
    written: datetime

    def head(self) -> dict[str, str]:
        """Return what the XML interface says of it in the head of an answer."""
        written = format_datetime(self.written, usegmt=True)
        return {"ETag": tag(self.data), "x-goog-generation": str(self.generation), "Last-Modified": written}


class Page(NamedTuple):
    """A part of a listing; the next one is behind `last`, "" for none."""

    objects: list[tuple[str, Stored]]
    folders: list[str]
    last: str


class Failed(Exception):
    """An answer that is no success: its code, and why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class Bucket:
    """The objects of one bucket and the uploads that are not finished."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock, self._numbers = threading.Lock(), itertools.count(1_700_000_000_000_000)
        self._objects: dict[str, Stored] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}  # parts by number

    def get(self, key: str) -> Stored:
        found = self._objects.get(key)
        if found is None:
            raise Failed(404, f"no object {key}")
        return found

    def put(self, key: str, data: bytes, condition: str | None) -> Stored:
        """Store an object where the generation there is that of the condition; 0: where there is none."""
        with self._lock:
            self._check(key, condition)
            self._objects[key] = made = Stored(data, next(self._numbers), datetime.now(UTC))
            return made

    def delete(self, key: str, condition: str | None) -> None:
        with self._lock:
            self._check(key, condition)
            self.get(key)
            del self._objects[key]

    def _check(self, key: str, condition: str | None) -> None:
        there = self._objects[key].generation if key in self._objects else 0
        if condition is not None and int(condition) != there:
            raise Failed(412, f"{key} is of generation {there}, not {condition}")

    def listed(self, prefix: str, delimiter: str, after: str, most: int = PAGE) -> Page:
        """Return objects and folders behind a name, in the order of their names."""
        with self._lock:
            there = sorted(self._objects.items())
        page = Page([], [], "")
        for key, stored in there:
            folder, slash, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            name = f"{prefix}{folder}{slash}" if slash else key
            if not key.startswith(prefix) or name <= after or name in page.folders[-1:]:
                continue
            if len(page.objects) + len(page.folders) >= most:
                return page
            page.folders.append(name) if slash else page.objects.append((key, stored))
            page = page._replace(last=name)
        return page._replace(last="")

    def begin(self) -> str:
        with self._lock:
            number = f"upload-{next(self._numbers)}"
            self._uploads[number] = {}
            return number

    def parts(self, upload: str) -> dict[int, bytes]:
        found = self._uploads.get(upload)
        if found is None:
            raise Failed(404, f"no upload {upload}")
        return found

    def end(self, upload: str) -> None:
        self._uploads.pop(upload, None)


class Request(BaseHTTPRequestHandler):
    """One connection; each request goes to one of the two interfaces."""

    protocol_version, wbufsize = "HTTP/1.1", -1  # head and body of an answer leave together
    bucket: Bucket

    def log_message(self, *_: object) -> None: ...

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.asked, self.body = dict(parse_qsl(parts.query, keep_blank_values=True)), self._body()
        found = JSON.fullmatch(parts.path)
        bucket, _, key = parts.path.removeprefix("/").partition("/")
        if found:
            bucket, key = found["bucket"], found["key"] or ""
        try:
            if unquote(bucket) != self.bucket.name:
                raise Failed(404, f"no bucket {bucket}")
            if found is None:
                self._xml(unquote(key))
            elif found["upload"]:
                self._upload()
            elif found["list"]:
                self._json(unquote(key))
            else:
                self._tell({"kind": "storage#bucket", "name": self.bucket.name, "id": self.bucket.name})
        except Failed as error:
            told = {"error": {"code": error.code, "message": error.text}}
            self._answer(json.dumps(told) if found else f"<Error>{escape(error.text)}</Error>", error.code)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes | str = b"", code: int = 200, head: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(code)
        for name, value in ({"Content-Length": str(len(data))} | (head or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _object(self, stored: Stored) -> None:
        """Answer with an object, or with the range of it that was asked for."""
        size, asked = len(stored.data), RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None:
            return self._answer(stored.data, 200, stored.head())
        start = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
        end = min(int(asked[2]) + 1, size) if asked[1] and asked[2] else size
        if start >= end:
            raise Failed(416, f"{asked[0]} of {size} bytes")
        told = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        return self._answer(stored.data[start:end], 206, stored.head() | told)

    # The XML interface: https://cloud.google.com/storage/docs/xml-api/reference-methods

    def _xml(self, key: str) -> None:
        condition, upload = self.headers.get("x-goog-if-generation-match"), self.asked.get("uploadId")
        if not key:
            self._xml_list()
        elif self.command in ("GET", "HEAD"):
            self._object(self.bucket.get(key))
        elif self.command == "POST":
            self._xml_multipart(key, upload, condition)
        elif upload is not None:
            self._xml_part(upload)
        elif self.command == "DELETE":
            self.bucket.delete(key, condition)
            self._answer(b"", 204)
        else:
            source = unquote(self.headers.get("x-goog-copy-source", "")).lstrip("/").partition("/")[2]
            data = self.bucket.get(source).data if source else self.body
            self._answer(b"", 200, self.bucket.put(key, data, condition).head())

    def _xml_part(self, upload: str) -> None:
        if self.command == "DELETE":
            self.bucket.end(upload)
            return self._answer(b"", 204)
        self.bucket.parts(upload)[int(self.asked["partNumber"])] = self.body
        return self._answer(b"", 200, {"ETag": tag(self.body)})

    def _xml_multipart(self, key: str, upload: str | None, condition: str | None) -> None:
        if upload is None:
            told = f"<Key>{escape(key)}</Key><UploadId>{self.bucket.begin()}</UploadId>"
            return self._answer(f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>")
        parts = self.bucket.parts(upload)
        wanted = [found.text or "" for found in ElementTree.fromstring(self.body).iterfind(".//{*}PartNumber")]
        if not wanted or not {int(number) for number in wanted} <= set(parts):
            raise Failed(400, f"parts {wanted} of {sorted(parts)}")
        stored = self.bucket.put(key, b"".join(parts[int(number)] for number in wanted), condition)
        self.bucket.end(upload)
        told = f"<Key>{escape(key)}</Key><ETag>{escape(tag(stored.data))}</ETag>"
        head = stored.head()
        return self._answer(f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>", 200, head)

    def _xml_list(self) -> None:
        asked = self.asked
        if self.command != "GET" or asked.get("list-type") != "2":
            raise Failed(400, f"{self.command} of the bucket with {sorted(asked)}")
        after = asked.get("continuation-token") or asked.get("start-after", "")
        most = min(PAGE, int(asked.get("max-keys", PAGE)))
        page = self.bucket.listed(asked.get("prefix", ""), asked.get("delimiter", ""), after, most)
        told = f"<Name>{self.bucket.name}</Name><IsTruncated>{str(bool(page.last)).lower()}</IsTruncated>"
        told += f"<NextContinuationToken>{escape(page.last)}</NextContinuationToken>" if page.last else ""
        for key, stored in page.objects:
            facts = {"Key": key, "Size": len(stored.data), "ETag": tag(stored.data), "Generation": stored.generation}
            facts |= {"LastModified": stored.written.isoformat()}
            told += f"<Contents>{''.join(f'<{k}>{escape(str(v))}</{k}>' for k, v in facts.items())}</Contents>"
        told += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in page.folders)
        self._answer(f"<ListBucketResult>{told}</ListBucketResult>", 200, {"Content-Type": "application/xml"})

    # The JSON interface: https://cloud.google.com/storage/docs/json_api/v1

    def _tell(self, told: dict[str, object]) -> None:
        self._answer(json.dumps(told), 200, {"Content-Type": "application/json"})

    def _facts(self, key: str, stored: Stored) -> dict[str, object]:
        facts = {"kind": "storage#object", "bucket": self.bucket.name, "name": key, "etag": tag(stored.data)}
        facts |= {"size": str(len(stored.data)), "generation": str(stored.generation), "metageneration": "1"}
        written = stored.written.isoformat().replace("+00:00", "Z")
        return {**facts, "timeCreated": written, "updated": written}

    def _json(self, key: str) -> None:
        if not key:
            after = self.asked.get("pageToken", "")
            page = self.bucket.listed(self.asked.get("prefix", ""), self.asked.get("delimiter", ""), after)
            told: dict[str, object] = {"kind": "storage#objects", "prefixes": page.folders}
            told |= {"items": [self._facts(*found) for found in page.objects]}
            self._tell(told | ({"nextPageToken": page.last} if page.last else {}))
        elif self.command == "DELETE":
            self.bucket.delete(key, self.asked.get("ifGenerationMatch"))
            self._answer(b"", 204)
        elif self.asked.get("alt") == "media":
            self._object(self.bucket.get(key))
        else:
            self._tell(self._facts(key, self.bucket.get(key)))

    def _upload(self) -> None:
        """A resumable upload: a POST names the object, PUTs bring its bytes in order, the last one their number."""
        upload = self.asked.get("upload_id")
        if upload is None and self.asked.get("uploadType") == "resumable":
            named = json.loads(self.body or b"{}").get("name")
            query = {"name": named} | self.asked | {"upload_id": self.bucket.begin()}
            words = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
            place = f"http://{self.headers['Host']}{urlsplit(self.path).path}?{words}"
            return self._answer(b"", 200, {"Location": place})
        if upload is None:
            raise Failed(400, f"an upload of type {self.asked.get('uploadType')}")
        parts, last = self.bucket.parts(upload), LAST_BYTES.fullmatch(self.headers.get("Content-Range", ""))
        parts[len(parts)] = self.body
        there = b"".join(parts.values())
        if "Content-Range" in self.headers and (last is None or int(last[1]) > len(there)):
            return self._answer(b"", 308, {"Range": f"bytes=0-{len(there) - 1}"} if there else {})
        key = self.asked["name"]
        stored = self.bucket.put(key, there, self.asked.get("ifGenerationMatch"))
        self.bucket.end(upload)
        return self._tell(self._facts(key, stored))


if __name__ == "__main__":
    Request.bucket = Bucket(sys.argv[3])
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Request).serve_forever()
