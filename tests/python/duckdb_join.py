"""Joins operations with the SST files they may have lost time in, in DuckDB, and says how long it took.

usage: duckdb_join.py DIRECTORY REPETITIONS

DIRECTORY holds files.csv (number, level, smallest key, largest key, bytes) and operations.csv (key, nanoseconds
lost). The files of a level do not overlap, so each operation meets at most one file a level: an ASOF join, the
fastest way that DuckDB has for it.
"""

import json
import resource
import statistics
import sys
import time

import duckdb

directory, repetitions = sys.argv[1], int(sys.argv[2])
connection = duckdb.connect()
connection.execute("SET threads = 2")
connection.execute("SET preserve_insertion_order = false")
connection.execute(
    f"""CREATE TABLE files AS SELECT * FROM read_csv('{directory}/files.csv', header = false,
    columns = {{'number': 'UBIGINT', 'level': 'UTINYINT', 'smallest': 'VARCHAR', 'largest': 'VARCHAR',
    'bytes': 'UBIGINT'}})"""
)
connection.execute(
    f"""CREATE TABLE operations AS SELECT * FROM read_csv('{directory}/operations.csv', header = false,
    columns = {{'key': 'VARCHAR', 'lost_ns': 'UBIGINT'}})"""
)
JOIN = """
WITH at_levels AS (
    SELECT level, key, lost_ns FROM operations, (SELECT DISTINCT level FROM files)
), met AS (
    SELECT files.number, files.bytes, lost_ns
    FROM at_levels ASOF JOIN files ON at_levels.level = files.level AND at_levels.key >= files.smallest
    WHERE at_levels.key <= files.largest
)
SELECT number, sum(lost_ns) AS lost_ns, count(*) AS pairs, sum(lost_ns) / any_value(bytes) AS worth
FROM met GROUP BY number ORDER BY worth DESC
"""
seconds, pairs = [], 0
for _ in range(repetitions):
    begin = time.monotonic()
    rows = connection.execute(JOIN).fetchall()
    seconds.append(time.monotonic() - begin)
    pairs = sum(row[2] for row in rows)
print(
    json.dumps(
        {
            "version": duckdb.__version__,
            "seconds": statistics.median(seconds),
            "pairs": pairs,
            "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        }
    )
)
