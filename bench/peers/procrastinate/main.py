"""procrastinate: jobs only. Driven by ../drive.py; the protocol stands in ../README.md."""

import asyncio
import json
import sys

from procrastinate import App, PsycopgConnector

PRODUCERS = 8
CONCURRENCY = 8

app = App(connector=PsycopgConnector(conninfo=sys.argv[1], min_size=PRODUCERS, max_size=PRODUCERS + CONCURRENCY + 2))


@app.task
async def noop():
    return None


def working(**options):
    return asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False, **options))


async def jobs(count):
    """A worker works beside the producers, woken by notifications; what is left at their end is worked off."""
    left = iter(range(count))

    async def produce():
        for _ in left:
            await noop.defer_async()

    worker = working()
    await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await working(wait=False)
    return []


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            _, count = line.split()
            print(json.dumps(await jobs(int(count))), flush=True)


asyncio.run(main())
