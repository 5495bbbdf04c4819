"""DBOS Transact for Python. Driven by ../drive.py; the protocol stands in ../README.md."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

STEPS = 10
url = sys.argv[1]
# Threads, each of which runs one workflow after the other. On SQLite 2 and 4 were no faster than 1, and 8 was slower.
CONCURRENCY = 1 if url.startswith("sqlite") else 8

DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})


@DBOS.step()
def noop():
    return None


@DBOS.workflow()
def chain():
    for _ in range(STEPS):
        noop()


def many(count):
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        for ended in [pool.submit(chain) for _ in range(count)]:
            ended.result()
    return []


def one_by_one(count):
    milliseconds = []
    for _ in range(count):
        begin = time.perf_counter()
        chain()
        milliseconds.append((time.perf_counter() - begin) * 1e3)
    return milliseconds


DBOS.launch()
print("ready", flush=True)
for line in sys.stdin:
    work, count = line.split()
    print(json.dumps({"W1": many, "W2": one_by_one}[work](int(count))), flush=True)
DBOS.destroy()
