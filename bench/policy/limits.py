#!/usr/bin/env python3
"""How exact limits are, and what they cost: bench/policy/limits.py exact|shares|neighbour|none BINARY [OTHER] [PAIRS]

exact      what comes through limits in 5 s, beside them
shares     what each of two disks of a group gets, in 2 s
neighbour  a disk without limits on the worker of one that waits, and without that one
none       BINARY beside OTHER (an earlier build), both without limits

Server and client have a processor each. Pairs are A B A B; a ratio is the median of the pairs, with the least and the
greatest.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVER, CLIENT = "0", "1"


class Server:
    """Disks in one daemon, on one worker."""

    def __init__(self, binary, folder, disks, spec="memory:size=256M"):
        self.folder = Path(folder)
        text = f'control = "{folder}/all.control"\n[process]\ncpus = "{SERVER}"\n'
        for name, limits in disks.items():
            text += f'[[disk]]\nname = "{name}"\nsocket-path = "{folder}/{name}.sock"\ndisk = "{spec}"\n'
            text += f'limits = "{limits}"\n' if limits else ""
        (self.folder / "disks.toml").write_text(text)
        command = [binary, "serve", "--config", f"{folder}/disks.toml", "--log-level", "error"]
        self.process = subprocess.Popen(command)
        while not (self.folder / "all.control").exists():
            time.sleep(0.01)

    def bench(self, binary, name, *options):
        command = [binary, "bench", "--socket", f"{self.folder}/{name}.sock", "--rw", "randread"]
        command += ["--cpus", CLIENT, "--output-format", "json", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    def end(self):
        self.process.terminate()
        self.process.wait()


def read(bench):
    out, _ = bench.communicate()
    return json.loads(out)["jobs"][0]["read"]


def iops(bench):
    return read(bench)["iops"]


def exact(binary):
    print("| limit | requests | asked a second | came | ratio |\n|---|---|---|---|---|")
    cells = [("iops-total", n, "4K", n, d) for n in (1000, 10_000, 100_000, 500_000) for d in ("4", "128")]
    cells += [("bps-read", n << 20, b, n << 20, "64") for n in (10, 100, 1024, 2048) for b in ("4K", "64K")]
    for limit, number, block, asked, depth in cells:
        if limit == "bps-read" and number == 2048 << 20 and block == "4K":
            continue
        with tempfile.TemporaryDirectory() as folder:
            server = Server(binary, folder, {"a": f"{limit}={number}"})
            got = read(server.bench(binary, "a", "--runtime", "5s", "--iodepth", depth, "--bs", block))
            server.end()
        came = got["iops"] if limit.startswith("iops") else got["iops"] * (int(block[:-1]) << 10)
        print(f"| {limit} | {block}, {depth} in flight | {asked} | {came:.0f} | {came / asked:.4f} |", flush=True)


def shares(binary):
    print("| limit of both | in flight | came on each a second |\n|---|---|---|")
    for limit in (1000, 10_000, 100_000):
        for depths in (("1", "1"), ("1", "16"), ("16", "16"), ("4", "64")):
            with tempfile.TemporaryDirectory() as folder:
                group = f'iops-total={limit}"\nlimit-group = "both'
                server = Server(binary, folder, {"a": group, "b": group})
                options = [("--runtime", "2s", "--iodepth", depth) for depth in depths]
                both = [server.bench(binary, name, *each) for name, each in zip("ab", options)]
                came = " and ".join(f"{iops(each):.0f}" for each in both)
                server.end()
            print(f"| {limit} | {' and '.join(depths)} | {came} |", flush=True)


def pairs(one, other, many):
    ratios, ones, others = [], [], []
    for _ in range(many):
        ones.append(one())
        others.append(other())
        ratios.append(ones[-1] / others[-1])
    ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
    return f"{statistics.median(ones) / 1000:.0f} / {statistics.median(others) / 1000:.0f} | {ratio} | {many} |"


def neighbour(binary, many):
    print("| disk beside one limited to | k IOPS with / without | ratio | pairs |\n|---|---|---|---|")
    for limit in (1000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(binary, folder, {"slow": f"iops-total={limit}", "free": ""})

            def free():
                return iops(server.bench(binary, "free", "--runtime", "600ms", "--iodepth", "32", "--completion", "polled"))

            def beside():
                slow = ["--runtime", "1200ms", "--iodepth", "64", "--completion", "call"]
                other = server.bench(binary, "slow", *slow)
                time.sleep(0.3)
                got = free()
                other.communicate()
                return got

            print(f"| {limit} | {pairs(beside, free, many)}", flush=True)
            server.end()


def none(binary, base, many):
    print("| disk | k IOPS now / before | ratio | pairs |\n|---|---|---|---|")
    for spec in ("memory:size=256M", "null:size=1G"):
        for depth in ("1", "32"):
            with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
                servers = [Server(binary, ours, {"a": ""}, spec), Server(base, theirs, {"a": ""}, spec)]

                def one(server):
                    # The same client for both.
                    return lambda: iops(server.bench(base, "a", "--runtime", "500ms", "--iodepth", depth))

                print(f"| {spec}, {depth} in flight | {pairs(one(servers[0]), one(servers[1]), many)}", flush=True)
                for server in servers:
                    server.end()


if __name__ == "__main__":
    what, binary, *rest = sys.argv[1:]
    numbers = [int(word) for word in rest if word.isdigit()]
    many = numbers[0] if numbers else 11
    if what == "exact":
        exact(binary)
    elif what == "shares":
        shares(binary)
    elif what == "neighbour":
        neighbour(binary, many)
    elif what == "none":
        none(binary, rest[0], many)
    else:
        sys.exit(__doc__)
