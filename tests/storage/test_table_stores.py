"""Lance and Delta Lake on an S3 API, with the options that every other reader takes."""

from __future__ import annotations

import traceback

import deltalake
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import OutputExistsError, PathNotFoundError, ReadError
from penstock.io.tables.libraries import store_errors
from penstock.storage.storage_options import library_options
from tests.storage.servers import Bucket

THEIRS = {
    "key": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "endpoint_url": "aws_endpoint",
    "region": "aws_region",
}


def own_names(bucket: Bucket) -> dict[str, str]:
    return {THEIRS[name]: value for name, value in bucket.options.items()} | {"aws_allow_http": "true"}


def test_lance(bucket: Bucket) -> None:
    uri, options = f"{bucket.url}/t.lance", bucket.options
    ps.from_pydict({"a": [1, 2]}).write_lance(uri, storage_options=options)
    ps.from_pydict({"a": [3]}).write_lance(uri, mode="append", storage_options=options)
    assert ps.read_lance(uri, storage_options=options).where(ps.col("a") > 1).to_pydict() == {"a": [2, 3]}
    assert ps.read_lance(uri, storage_options=own_names(bucket)).count_rows() == 3
    with pytest.raises(OutputExistsError):
        ps.from_pydict({"a": [3]}).write_lance(uri, storage_options=options)
    with pytest.raises(PathNotFoundError, match="no Lance dataset"):
        ps.read_lance(f"{bucket.url}/other.lance", storage_options=options)


def test_deltalake(bucket: Bucket) -> None:
    uri = f"{bucket.url}/table"
    deltalake.write_deltalake(uri, pa.table({"a": [1, 2, 3]}), storage_options=own_names(bucket))
    found = ps.read_deltalake(uri, storage_options=bucket.options)
    assert found.where(ps.col("a") > 1).to_pydict() == {"a": [2, 3]}
    assert ps.read_deltalake(uri, storage_options=own_names(bucket)).count_rows() == 3
    with pytest.raises(PathNotFoundError, match="no Delta table"):
        ps.read_deltalake(f"{bucket.url}/other", storage_options=bucket.options)


def test_options_of_the_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "region": "AWS_REGION"}
    for name, variable in {**names, "endpoint_url": "AWS_ENDPOINT_URL"}.items():
        monkeypatch.setenv(variable, bucket.options[name])
    ps.from_pydict({"a": [1]}).write_lance(f"{bucket.url}/t.lance")
    assert ps.read_lance(f"{bucket.url}/t.lance").to_pydict() == {"a": [1]}
    deltalake.write_deltalake(f"{bucket.url}/t", pa.table({"a": [1]}), storage_options={"allow_http": "true"})
    assert ps.read_deltalake(f"{bucket.url}/t").to_pydict() == {"a": [1]}


@pytest.mark.parametrize("reader", [ps.read_lance, ps.read_deltalake])
def test_messages_are_plain_and_without_secrets(bucket: Bucket, reader: type[ps.DataFrame]) -> None:
    options = {"endpoint_url": bucket.options["endpoint_url"], "region": "us-east-1", "anon": True, "secret": "hidden!"}
    bucket.store.put("table/_delta_log/00000000000000000000.json", b"hidden!")
    with pytest.raises(ReadError) as caught:
        reader(f"{bucket.url}/table", storage_options=options)
    assert "\x1b" not in str(caught.value)
    assert "hidden!" not in str(caught.value)
    assert "169.254" not in str(caught.value)


def test_a_traceback_shows_no_cause_with_secrets() -> None:
    secret = "hid" + "den!"
    for message, is_shown in ((f"key {secret} is wrong", False), ("no such region", True)):
        with pytest.raises(ReadError) as caught, store_errors("table", secrets=(secret,)):
            raise ValueError(message)
        assert (message in "".join(traceback.format_exception(caught.value))) == is_shown


def test_names_are_the_stores_own() -> None:
    assert library_options("gs://b/t", {"anon": True}) == {"google_skip_signature": "true"}
    assert library_options("az://b/t", {"account": "me", "key": "k", "anon": False}) == {
        "azure_storage_account_name": "me",
        "azure_storage_account_key": "k",
        "azure_skip_signature": "false",
    }
    assert library_options("s3://b/t", {"token": "t", "region": None}) == {"aws_session_token": "t"}
    assert library_options("/tmp/t", {"key": 1}) == {"key": "1"}
    assert library_options("/tmp/t", None) is None
