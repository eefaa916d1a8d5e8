"""A server for tests that speaks the protocol of MongoDB, over the collections of mongomock.

No package ships a MongoDB server. So pymongo talks to this one by its real protocol (OP_MSG, BSON, cursors), and
mongomock answers queries as MongoDB documents them. It refuses all credentials.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any

import bson
import mongomock
import pymongo.errors

HELLO = {"isWritablePrimary": True, "maxBsonObjectSize": 2**24, "maxMessageSizeBytes": 48_000_000,
         "maxWriteBatchSize": 100_000, "minWireVersion": 0, "maxWireVersion": 21, "readOnly": False}  # fmt: skip
BATCH = 101  # documents of an answer


class Server(ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.store: Any = mongomock.MongoClient()
        self.cursors: dict[int, list[Any]] = {}
        self.ids = itertools.count(1)
        self.commands: list[dict[str, Any]] = []
        self.lock = Lock()

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.server_address[1]}/?serverSelectionTimeoutMS=5000"

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(command)
        name = next(iter(command))
        run = getattr(self, f"run_{name.lower()}", None)
        if run is None:
            return {"ok": 0, "code": 59, "errmsg": f"no such command: '{name}'"}
        try:
            return {"ok": 1, **run(self.store[command["$db"]], command)}
        except pymongo.errors.OperationFailure as exc:
            return {"ok": 0, "code": exc.code or 1, "errmsg": str(exc)}

    def run_hello(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        return HELLO

    run_ismaster = run_hello

    def run_saslstart(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        raise pymongo.errors.OperationFailure("Authentication failed.", 18)

    def run_endsessions(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        return {}

    def run_create(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        database.create_collection(command["create"])
        return {}

    def run_drop(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        database.drop_collection(command["drop"])
        return {}

    def run_renamecollection(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        (source, old), (_, new) = (command[key].split(".", 1) for key in ("renameCollection", "to"))
        self.store[source][old].rename(new, dropTarget=command.get("dropTarget", False))
        return {}

    def run_listcollections(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        wanted = command.get("filter", {}).get("name")
        names = [name for name in database.list_collection_names() if wanted in (None, name)]
        return self._cursor(f"{database.name}.$cmd", [{"name": name, "type": "collection"} for name in names])

    def run_insert(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        errors = []
        for index, document in enumerate(command["documents"]):
            try:
                database[command["insert"]].insert_one(document)
            except pymongo.errors.DuplicateKeyError as exc:
                errors.append({"index": index, "code": 11000, "errmsg": str(exc)})
        return {"n": len(command["documents"]) - len(errors), **({"writeErrors": errors} if errors else {})}

    def run_aggregate(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        collection, stages = database[command["aggregate"]], command["pipeline"]
        if stages and "$merge" in stages[-1]:
            for document in collection.aggregate(stages[:-1]):
                database[stages[-1]["$merge"]["into"]].insert_one(document)  # whenMatched is "fail"
            return self._cursor(collection.full_name, [])
        size = command["cursor"].get("batchSize", BATCH)
        return self._cursor(collection.full_name, list(collection.aggregate(stages)), size=size)

    def run_getmore(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        rest = self.cursors.pop(command["getMore"])
        return self._cursor(f"{database.name}.{command['collection']}", rest, "nextBatch")

    def run_killcursors(self, database: Any, command: dict[str, Any]) -> dict[str, Any]:
        for cursor in command["cursors"]:
            self.cursors.pop(cursor, None)
        return {}

    def _cursor(self, name: str, documents: list[Any], batch: str = "firstBatch", size: int = BATCH) -> dict[str, Any]:
        number = bson.Int64(0)
        if len(documents) > size:
            number = bson.Int64(next(self.ids))
            self.cursors[number] = documents[size:]
        return {"cursor": {"id": number, "ns": name, batch: documents[:size]}}


class Connection(StreamRequestHandler):
    """One connection: each message is a command, answered by one message."""

    server: Server

    def handle(self) -> None:
        while header := self.rfile.read(16):
            length, request, _, _ = struct.unpack("<iiii", header)
            command = parsed(self.rfile.read(length - 16))
            with self.server.lock:
                document = bson.encode(self.server.answer(command))
            body = struct.pack("<IB", 0, 0) + document
            self.wfile.write(struct.pack("<iiii", 16 + len(body), request, request, 2013) + body)


def parsed(body: bytes) -> dict[str, Any]:
    """Return the command of an OP_MSG; a section of kind 1 is a list of documents in it."""
    command: dict[str, Any] = {}
    position = 4
    while position < len(body):
        kind, (size,) = body[position], struct.unpack_from("<i", body, position + 1)
        section = body[position + 1 : position + 1 + size]
        if kind == 0:
            command = {**bson.decode(section), **command}
        else:
            name, _, documents = section[4:].partition(b"\0")
            command[name.decode()] = bson.decode_all(documents)
        position += 1 + size
    return command


@contextmanager
def running_server() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
