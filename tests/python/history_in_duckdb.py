"""Sums up the history that an agent writes, in DuckDB, and says how often it could be read.

usage: history_in_duckdb.py DIRECTORY SECONDS

DuckDB opens a file twice in a query. Where it is replaced in between, the query fails, and is right when it is asked
again.
"""

import json
import sys
import time

import duckdb

directory, seconds = sys.argv[1], float(sys.argv[2])
connection = duckdb.connect()
connection.execute("SET threads = 1")
until = time.monotonic() + seconds
reads = replaced = 0
row = ()
while reads == 0 or time.monotonic() < until:
    try:
        row = connection.execute(
            f"""SELECT count(*), sum(pain_sum), sum(actions_sum), sum(bytes_compacted_sum),
                max(pain_per_second_max), min(epoch(begin)), count(DISTINCT column_family),
                count(*) FILTER (pain_sum > 0 AND key_begin < '/vol1/bucket2'::BLOB AND
                    (key_end IS NULL OR key_end > '/vol1/bucket1'::BLOB)),
                coalesce(sum(list_sum(lists_by_latency)), 0) FROM '{directory}/1min.parquet'"""
        ).fetchone()
        reads += 1
    except duckdb.Error:
        # The agent replaces it every fifteen seconds.
        replaced += 1
        if replaced > 5:
            raise
names = ["rows", "pain", "actions", "bytes", "peak", "begin", "families", "in_bucket", "lists"]
print(json.dumps({"reads": reads, "replaced": replaced, **dict(zip(names, row))}))
