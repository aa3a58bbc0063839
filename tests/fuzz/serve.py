#!/usr/bin/env python3
"""serve.py TESSERA MODEL [SECONDS]: sends damaged requests to `tessera serve`, 15 minutes unless SECONDS are given.

Requests are valid ones with changed values, with changed bytes, or cut off; clients wait, go away, or send two at a
time. Every answer must be whole, with a status that the server knows and a body of JSON, and the server must answer
/health after every hundred. In the end a signal must stop it with status 0. Prints requests by status, and the memory
of the server after a minute and at the end. Build TESSERA with the preset asan to see errors of memory, too: that program
keeps up to 256 MiB that it has freed, and with ASAN_OPTIONS=quarantine_size_mb=1 the memory stays as it is.
"""
import collections
import concurrent.futures
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time

VALUES = [None, True, False, 0, 1, -1, 2, 17, 1.5, -0.0, 1e308, 2**31, 2**63, -2**63, 10**30, "", "a", "\u0000", "😀", "\ud800", "é" * 50,
          "x" * 5000, [], {}, [[]], [1, 2, 3], [0], [255], [[1], [2, 3]], ["a", "b"], ["a", 1], {"a": 1}, [None], [[[[1]]]]]
FIELDS = ["prompt", "messages", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "n", "seed", "stop",
          "logprobs", "top_logprobs", "echo", "stream", "stream_options", "tools", "user", "role", "content", "colour"]
PATHS = ["/v1/completions", "/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/", "/v1/%00", "/v1//"]
STATUSES = {200, 400, 404, 405, 413, 429, 501}


def valid(rng):
    text = "".join(rng.choice("ab é日😀\n") for _ in range(rng.randrange(1, 20)))
    request = {"prompt": rng.choice([text, [1, 2, 3], [text, "b"], [[5], [6, 7]]]), "max_tokens": rng.randrange(0, 20)}
    if rng.random() < 0.2:
        request = {"messages": [{"role": "user", "content": text}], "max_tokens": rng.randrange(1, 20)}
    for field, value in (("stream", True), ("echo", True), ("logprobs", 2), ("n", 3), ("stop", ["a", "日"]), ("top_k", 5), ("seed", 1)):
        if rng.random() < 0.3:
            request[field] = value
    return request


def body_of(rng):
    request = valid(rng)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        request[rng.choice(FIELDS)] = rng.choice(VALUES)
    body = bytearray(json.dumps(request).encode())
    for _ in range(rng.choice([0, 0, 0, 1, 3, 10])):
        at = rng.randrange(len(body))
        change = rng.random()
        if change < 0.5:
            body[at] = rng.randrange(256)
        elif change < 0.7:
            del body[at:at + rng.randrange(1, 10)]
        else:
            body[at:at] = rng.choice([b"[" * 70, b"\\u", b'"', b"\xff", b"1e999", b"{", body[:at]])
        body = body or bytearray(b"{")
    if rng.random() < 0.002:
        body = bytearray(json.dumps({"prompt": "a" * rng.choice([1 << 20, 5 << 20])}).encode())
    return bytes(body)


def head_of(rng, body):
    method = rng.choice(["POST"] * 12 + ["GET", "PUT", "HEAD", "\x00"])
    length = len(body) if rng.random() < 0.95 else rng.choice([0, 1, len(body) + 5, 1 << 40, -1])
    more = rng.choice([""] * 8 + ["Expect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n", "no colon\r\n",
                                  "X: " + "y" * 70000 + "\r\n"])
    return f"{method} {rng.choice(PATHS)} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n".encode()


class Fuzzer:
    def __init__(self, port):
        self.port = port
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def send(self, seed):
        rng = random.Random(seed)
        body = body_of(rng)
        data = head_of(rng, body) + body
        if rng.random() < 0.1:
            data = data[:rng.randrange(len(data))]
        whole = f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection(("127.0.0.1", self.port), timeout=90) as client:
            try:
                client.sendall(data + (data if rng.random() < 0.05 else b""))
                if rng.random() < 0.2:
                    return self.count("left")
                if not data.endswith(whole) or b"chunked" in data or rng.random() < 0.05:
                    client.shutdown(socket.SHUT_WR)  # the server must not wait for more
                return self.count(self.read(client))
            except OSError as error:
                return self.count(type(error).__name__)

    @staticmethod
    def read(client):
        answer = http.client.HTTPResponse(client, method="POST")
        try:
            answer.begin()
            text = answer.read()
        except http.client.HTTPException as error:
            return type(error).__name__
        assert answer.status in STATUSES, (answer.status, text)
        if answer.headers.get_content_type() == "application/json":
            json.loads(text)
        elif answer.headers.get_content_type() == "text/event-stream":
            assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
            text.decode()
        return str(answer.status)

    def count(self, what):
        with self.lock:
            self.counts[what] += 1


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def fuzz(fuzzer, process, seconds):
    """The number of requests, the seconds, and the memory after a while and at the end."""
    begin, seed, early = time.monotonic(), 0, None
    with concurrent.futures.ThreadPoolExecutor(32) as clients:
        while time.monotonic() - begin < seconds:
            list(clients.map(fuzzer.send, range(seed, seed + 100)))
            seed += 100
            connection = http.client.HTTPConnection("127.0.0.1", fuzzer.port, timeout=90)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            if early is None and time.monotonic() - begin > min(60, seconds / 4):
                early = resident(process)
    return seed, time.monotonic() - begin, early, resident(process)


def main():
    program, model = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 900
    process = subprocess.Popen([program, "serve", "--model", model, "--port", "0", "--device", "cpu", "--threads", "1", "--queue", "64"],
                               stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    port = int(line.partition("http://")[2].partition(" ")[0].rpartition(":")[2])
    fuzzer = Fuzzer(port)
    try:
        seed, taken, early, late = fuzz(fuzzer, process, seconds)
    except BaseException:
        process.kill()
        raise
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    print(f"{seed} requests in {taken:.0f} s: {dict(fuzzer.counts)}")
    print(f"memory: {early} MiB early, {late} MiB at the end; status {process.returncode}; {out.strip()}")
    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
