#!/usr/bin/env python3
"""What it costs to be watched: bench/policy/observe.py off|on|trace|scrape BINARY [OTHER] [PAIRS]

off     BINARY beside OTHER (an earlier build), both with nothing switched on
on      BINARY with the times of requests counted, beside itself without that
trace   BINARY while requests are traced, beside itself without that
scrape  BINARY scraped each second, beside itself unwatched: p99 of 20000 requests a second, and the processor time of
        its control thread

Server and client have a processor each, as in limits.py, from which pairs and their ratios are.
"""
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import Server, iops, none, pairs, read

DISK = "/v1/disks/a"


def curl(folder, *words):
    words = ["curl", "--silent", "--fail", "--output", "/dev/null", "--unix-socket", f"{folder}/all.control", *words]
    subprocess.run(words, check=True)


def beside_itself(binary, many, switch):
    print("| disk | k IOPS on / off | ratio | pairs |\n|---|---|---|---|")
    for spec in ("memory:size=256M", "null:size=1G"):
        for depth in ("1", "32"):
            with tempfile.TemporaryDirectory() as folder:
                server = Server(binary, folder, {"a": ""}, spec)

                def one(on):
                    def run():
                        switch(folder, on)
                        return iops(server.bench(binary, "a", "--runtime", "500ms", "--iodepth", depth))

                    return run

                print(f"| {spec}, {depth} in flight | {pairs(one(True), one(False), many)}", flush=True)
                server.end()


def latencies(folder, on):
    change = json.dumps({"latencies": on})
    curl(folder, "--request", "PATCH", "--data", change, f"http://pollux{DISK}")


def trace(folder, on):
    url = f"http://pollux{DISK}/trace"
    if on:
        curl(folder, "--request", "PUT", "--data", '{"seconds": 60}', url)
    else:
        curl(folder, "--request", "DELETE", url)


def control_ns(server):
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "control":
            return int((task / "schedstat").read_text().split()[0])
    sys.exit("there is no control thread")


def scrape_once(folder):
    # Not by a process of its own: to start one takes longer than the scrape, on a processor of the two.
    with socket.socket(socket.AF_UNIX) as scraper:
        scraper.connect(f"{folder}/all.control")
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: pollux\r\nConnection: close\r\n\r\n")
        answer = scraper.makefile("rb").read()
    if not answer.startswith(b"HTTP/1.1 200"):
        sys.exit("the scrape has failed")


def scrape(binary, many):
    seconds = 5
    with tempfile.TemporaryDirectory() as folder:
        server = Server(binary, folder, {"a": ""})
        latencies(folder, True)
        load = ["--runtime", f"{seconds}s", "--iodepth", "8", "--rate-iops", "20000"]
        p99, costs = {True: [], False: []}, []
        for _ in range(many):
            for scraped in (True, False):
                before = control_ns(server)
                bench = server.bench(binary, "a", *load)
                while scraped and bench.poll() is None:
                    scrape_once(folder)
                    time.sleep(1)
                p99[scraped].append(read(bench)["clat_ns"]["percentile"]["99.000000"] / 1000)
                if scraped:
                    costs.append((control_ns(server) - before) / (seconds * 1e9))
        server.end()
    ratios = [on / off for on, off in zip(p99[True], p99[False])]
    print("| p99 scraped, µs | unwatched, µs | ratio | control thread's share of a processor | pairs |")
    print("|---|---|---|---|---|")
    on, off = (statistics.median(p99[scraped]) for scraped in (True, False))
    ratio = f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
    print(f"| {on:.1f} | {off:.1f} | {ratio} | {100 * statistics.median(costs):.3f} % | {many} |")


if __name__ == "__main__":
    what, binary, *rest = sys.argv[1:]
    numbers = [int(word) for word in rest if word.isdigit()]
    many = numbers[0] if numbers else 11
    if what == "off":
        none(binary, rest[0], many)
    elif what == "on":
        beside_itself(binary, many, latencies)
    elif what == "trace":
        beside_itself(binary, many, trace)
    elif what == "scrape":
        scrape(binary, many)
    else:
        sys.exit(__doc__)
