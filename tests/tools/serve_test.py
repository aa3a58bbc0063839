#!/usr/bin/env python3
"""serve_test.py TESSERA: trains a tiny model, and checks the answers, lines and exit status of `tessera serve`."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

TRAIN = """\
model: {preset: gpt2-mini, layers: 1, heads: 2, width: 16, context: 64}
data: {train: data/train.bin, batch_size: 2, sequence_length: 16}
train: {steps: 2, dir: run}
runtime: {device: cpu, threads: 1}
"""


class Server:
    """A running server, which its first line says to be ready."""

    def __init__(self, program, folder, *options):
        self.process = subprocess.Popen(
            [program, "serve", "--model", "run", "--port", "0", "--device", "cpu", "--threads", "1", *options],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.line = self.process.stdout.readline()
        self.port = int(self.line.partition("http://")[2].partition(" ")[0].rpartition(":")[2])

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def complete(self, **request):
        status, text = self.ask("POST", "/v1/completions", request)
        assert status == 200, text
        return json.loads(text)

    def leave(self, **request):
        """Asks, and goes away without the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/v1/completions", json.dumps(request))
        connection.close()

    def stop(self, number):
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err


def check(condition, *what):
    if not condition:
        sys.exit(f"serve_test.py: {what}")


def generated(program, folder, prompt, seed):
    done = subprocess.run([program, "generate", "--model", "run", "--prompt", prompt, "--tokens", "20", "--seed", str(seed),
                           "--json", "--device", "cpu", "--threads", "1"], cwd=folder, capture_output=True, check=True)
    ids = json.loads(done.stdout)["ids"]
    new = bytes(ids[len(prompt.encode()):])  # a token is a byte
    return new.decode("utf-8", errors="replace")


def many_clients(server, expected):
    """100 requests at once; every fourth client goes away, and every third of the others reads a stream."""
    def client(i):
        prompt, seed = list(expected)[i % len(expected)]
        request = {"prompt": prompt, "seed": seed, "max_tokens": 20, "stream": i % 3 == 0}
        if i % 4 == 0:
            return server.leave(**request)
        status, text = server.ask("POST", "/v1/completions", request)
        check(status == 200, status, text)
        if i % 3 == 0:
            events = text.decode().split("\n\n")
            check(events[-2:] == ["data: [DONE]", ""], events)
            parts = [json.loads(event[len("data: "):])["choices"][0]["text"] for event in events[:-2]]
            answer = "".join(parts)
        else:
            answer = json.loads(text)["choices"][0]["text"]
        check(answer == expected[prompt, seed], prompt, seed, answer)
        return None
    with concurrent.futures.ThreadPoolExecutor(100) as clients:
        list(clients.map(client, range(100)))


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("One é and two 日本 and 😀 three. " * 60)
        (folder / "tiny.yaml").write_text(TRAIN)
        for words in (["prepare", "--input", "text.txt", "--tokenizer", "bytes", "--out", "data"], ["train", "tiny.yaml"]):
            subprocess.run([program, *words], cwd=folder, check=True, capture_output=True)
        expected = {(prompt, seed): generated(program, folder, prompt, seed)
                    for prompt in ("One é", "three") for seed in (0, 5)}

        server = Server(program, folder)
        check(server.line == f"serving run at http://127.0.0.1:{server.port} with 16 rows of 64 tokens\n", server.line)
        many_clients(server, expected)
        status, text = server.ask("POST", "/v1/completions", {"prompt": "a" * (1 << 20)})
        check(status == 400 and json.loads(text)["error"]["code"] == "context_length_exceeded", status, text[:200])
        status, text = server.ask("POST", "/v1/completions", b'{"prompt": "\xff"}')
        check(status == 400, status, text)
        check(server.complete(prompt="a", max_tokens=3)["usage"]["total_tokens"] == 4)
        code, out, err = server.stop(signal.SIGTERM)
        check(code == 0 and not err, code, out, err)
        check(out.startswith("stopped by SIGTERM after ") and out.count("\n") == 1, out)

        server = Server(program, folder, "--host", "0.0.0.0", "--batch", "2")
        code, out, err = server.stop(signal.SIGINT)
        check(code == 0 and "after 0 texts" in out, code, out)
        check(err.startswith("warning: other machines can reach this server") and err.count("\n") == 1, err)

        failed = subprocess.run([program, "serve", "--model", "run", "--port", "0", "--ranks", "2"], cwd=folder,
                                capture_output=True, text=True, check=False)
        check(failed.returncode == 1 and failed.stderr.startswith("tessera: serve computes on one rank"), failed)
    print("the server answers, stops and warns")


if __name__ == "__main__":
    main()
