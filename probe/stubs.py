"""Hostile peers: servers that answer as nobody should. Each connection is handled by a thread of its own."""

import contextlib
import socket
import threading
import time


class Stub:
    """Listens on a free loopback port and hands each connection to `behave(connection, stub)`."""

    def __init__(self, behave):
        self.behave, self.connections, self.requests = behave, 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.done = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def accept(self):
        while not self.done.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.settimeout(60)
        with contextlib.suppress(OSError, ValueError), connection:
            self.behave(connection, self)


def request(connection):
    """The next request: its first line, and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None, b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            break
        body += piece
    return head.split(b"\r\n")[0].decode("latin-1"), body


def answering(status, body=b"", headers=b""):
    """Says this to every request, and remembers them."""

    def behave(connection, stub):
        while True:
            line, sent = request(connection)
            if line is None:
                return
            stub.requests.append((line, sent))
            head = b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers)
            connection.sendall(head + body)

    return behave


def silent(connection, stub):
    """Takes the request and never answers."""
    stub.requests.append(request(connection))
    stub.done.wait(120)


def endless(first, piece, pause=0.0):
    """Answers without end."""

    def behave(connection, stub):
        stub.requests.append(request(connection))
        connection.sendall(first)
        while not stub.done.is_set():
            connection.sendall(piece)
            time.sleep(pause)

    return behave


def saying(data):
    """Says exactly this, whatever it is asked, and closes."""

    def behave(connection, stub):
        stub.requests.append(request(connection))
        connection.sendall(data)

    return behave


HEAD = b"HTTP/1.1 200 OK\r\n"
HTTP_BEHAVIOURS = {
    "never answers": silent,
    "an answer without end": endless(HEAD + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536),
    "chunks without end": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"y" * 65536 + b"\r\n"),
    "headers without end": endless(HEAD, b"X-Filler: " + b"z" * 1000 + b"\r\n"),
    "a header line without end": endless(HEAD + b"X: ", b"z" * 65536),
    "one byte a second": endless(HEAD + b"Content-Length: 100000\r\n\r\n", b"s", pause=1.0),
    "interim answers without end": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.001),
    "no HTTP": saying(b"\x00\xffnonsense\r\n\r\n"),
    "closes at once": saying(b""),
    "contradicting lengths": saying(HEAD + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello"),
    "a status that is none": saying(b"HTTP/1.1 999999 x\r\n\r\n"),
}
