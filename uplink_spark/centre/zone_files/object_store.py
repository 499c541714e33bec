"""One bucket, as the landing zone and its retention use it: of S3 here, of Google's and Azure's store in cloud_store.

Needed of the store: strong read-after-write and conditional create (all three have both).
URL: s3://bucket/prefix?endpoint_override=HOST:PORT&scheme=http&region=R, as pyarrow reads it on Spark's side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlparse

from uplink_spark.centre.zone_files.bucket_store import BucketStore, created
from uplink_spark.errors import LandingError
from uplink_spark.zone.files import shown

CLOUDS = ("gs", "abfs", "abfss")


def open_store(url: str) -> BucketStore:
    """Return the store of a URL. Raises LandingError."""
    if urlparse(url).scheme in CLOUDS:
        # Its library is not needed where no such store is.
        from uplink_spark.centre.zone_files.cloud_store import open_cloud

        return open_cloud(url)
    return ObjectStore(url)


class ObjectStore:
    """Get, put, create and list below a prefix of one bucket; errors are OSError. Blocks."""

    def __init__(self, url: str) -> None:
        parts = urlparse(url)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if "@" in parts.netloc:
            raise LandingError(
                f"landing zone {shown(url)}: a key does not belong in a URL; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, a profile or a role"
            )
        if parts.scheme != "s3" or not parts.netloc:
            raise LandingError(
                f"landing zone {shown(url)}: a gateway writes into a folder, s3:, gs: or abfs:; hdfs: is for readers, "
                "of a copy"
            )
        try:
            boto3, settings = import_module("boto3"), import_module("botocore.config")
        except ImportError as error:
            raise LandingError(f"landing zone {shown(url)} needs boto3; install it with: pip install boto3") from error
        endpoint = query.get("endpoint_override")
        self.bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self.place = f"s3://{self.bucket}"
        self._faults: Any = import_module("botocore.exceptions")
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=f"{query.get('scheme', 'https')}://{endpoint}" if endpoint else None,
            region_name=query.get("region"),
            config=settings.Config(
                retries={"max_attempts": 5, "mode": "standard"}, connect_timeout=10, read_timeout=60
            ),
        )

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _ask(self, call: Callable[..., Any], **settings: Any) -> Any:
        """Call the client; None for what is not there, OSError for everything else but a lost race."""
        try:
            return call(Bucket=self.bucket, **settings)
        except self._faults.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ("NoSuchKey", "404"):
                return None
            if code in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
                raise FileExistsError(f"{settings.get('Key')}: {code}") from error
            raise OSError(f"object store: {error}") from error
        except self._faults.BotoCoreError as error:
            raise OSError(f"object store: {error}") from error

    def get(self, path: str, at: int = 0, length: int | None = None) -> bytes | None:
        extra = {} if length is None else {"Range": f"bytes={at}-{at + length - 1}"}
        found = self._ask(self._client.get_object, Key=self._key(path), **extra)
        return None if found is None else bytes(found["Body"].read())

    def put(self, path: str, data: bytes) -> None:
        self._ask(self._client.put_object, Key=self._key(path), Body=data)

    def create(self, path: str, data: bytes) -> bool:
        """Create an object that is not there; False when somebody else's is. A repeat of our own counts as ours."""
        put = partial(self._ask, self._client.put_object, Key=self._key(path), Body=data, IfNoneMatch="*")
        return created(put, lambda: self.get(path), data)

    replace = put

    def delete(self, path: str) -> None:
        self._ask(self._client.delete_object, Key=self._key(path))

    def size(self, path: str) -> int:
        found = self._ask(self._client.head_object, Key=self._key(path))
        return 0 if found is None else int(found["ContentLength"])

    def written_ms(self, path: str) -> int:
        """When an object was put there, by the store's clock; 0 if there is none."""
        found = self._ask(self._client.head_object, Key=self._key(path))
        return 0 if found is None else int(found["LastModified"].timestamp() * 1000)

    def names(self, folder: str, *, deep: bool = False, after: str = "") -> list[str]:
        """The names in a folder, of objects and of folders; deep: of objects in all folders below it, as paths.

        after: only names behind it in the order of their bytes; those before it are not asked for.
        """
        prefix, token, found = self._key(folder) + "/", None, list[str]()
        more: dict[str, str] = {} if deep else {"Delimiter": "/"}
        more |= {"StartAfter": prefix + after} if after else {}
        while True:
            more |= {"ContinuationToken": token} if token else {}
            page = self._ask(self._client.list_objects_v2, Prefix=prefix, **more) or {}
            found += [item["Key"].removeprefix(prefix) for item in page.get("Contents", ())]
            found += [item["Prefix"].removeprefix(prefix).rstrip("/") for item in page.get("CommonPrefixes", ())]
            token = page.get("NextContinuationToken")
            if not token:
                return found
