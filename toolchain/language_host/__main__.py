"""Serves the engine: prints the port that it listens on, then waits until it is told to stop."""

import logging
import os
import signal
import sys
import threading
from concurrent import futures
from types import FrameType

import grpc
from pulumi.runtime.proto import language_pb2_grpc

from .children import Children
from .service import LanguageHost

MAX_MESSAGE_BYTES = 400 << 20  # what the engine itself allows
PARENT_POLL_S = 1.0
ANSWER_S = 0.5  # for the answers about programs that have just ended


def main() -> int:
    """Serve until the engine interrupts the process group or is gone."""
    logging.getLogger("grpc").setLevel(logging.CRITICAL)  # standard error goes to the user's screen
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    children = Children()
    server = grpc.server(
        futures.ThreadPoolExecutor(16),
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ],
    )
    host = LanguageHost(engine=addresses[-1] if addresses else "", children=children)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")

    stop = threading.Event()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    # The engine interrupts the whole process group when it closes us: the program has had the signal already,
    # and we leave once it has ended.
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()

    parent = os.getppid()
    while not stop.wait(PARENT_POLL_S) and os.getppid() == parent:
        pass
    if not stop.is_set():
        children.interrupt()
    children.wait()
    server.stop(grace=ANSWER_S).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
