"""The other end of ``processes``: ``python -m penstock.execution.worker SOCKET_FD LIFELINE_FD`` serves one handler.

It is started afresh, not forked, so it inherits no threads, locks or CUDA state from the user's process.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator

import pyarrow as pa

from penstock.execution.transport import Closed, receive, send
from penstock.protocols import Handler


def main(socket_fd: int, lifeline_fd: int) -> None:
    # Ctrl-C reaches the whole process group; the driver decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(lifeline_fd,), daemon=True).start()
    with socket.socket(fileno=socket_fd) as sock:
        try:
            serve(sock)
        except Closed:
            pass
    sys.stdout.flush()
    sys.stderr.flush()


def serve(sock: socket.socket) -> None:
    """Answer requests until told to close: ``open`` once, then ``process`` and ``finish``."""
    handler: Handler | None = None
    while True:
        (verb, *args), batch = receive(sock)
        try:
            if verb == "open":
                sys.path[:] = args[1]
                handler = pickle.loads(args[0])(lambda: False)
                send(sock, ("done",))
            elif verb == "close":
                if handler is not None:
                    handler.close()
                return
            elif handler is not None:
                outputs = handler.process(batch, args[0]) if verb == "process" else handler.finish()
                _send_outputs(sock, iter((outputs,)) if isinstance(outputs, pa.RecordBatch) else outputs)
        except Closed:
            raise
        except BaseException as exc:
            send(sock, ("error", packed_error(exc)))


def _send_outputs(sock: socket.socket, outputs: Iterator[pa.RecordBatch]) -> None:
    """Send each output when the driver asks for one."""
    for batch in outputs:
        send(sock, ("output",), batch)
        receive(sock)
    send(sock, ("done",))


def packed_error(exc: BaseException) -> bytes:
    """Return an exception with its cause and the text of its traceback, none of which pickle keeps."""
    import cloudpickle

    note = "In the worker process:\n" + "".join(traceback.format_exception(exc))
    try:
        packed = cloudpickle.dumps((exc, exc.__cause__, note))
        pickle.loads(packed)  # many exception classes can be pickled but not restored
        return packed
    except Exception:
        return cloudpickle.dumps((RuntimeError(f"{type(exc).__name__}: {exc}"), None, note))


def _end_with_parent(lifeline_fd: int) -> None:
    """End this process once the driver is gone, even in the middle of a long call."""
    os.read(lifeline_fd, 1)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
