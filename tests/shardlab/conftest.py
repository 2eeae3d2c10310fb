"""The workers' imports, and pytest's collection, take seconds each: they go on side by side."""

from tests.shardlab import pool

pool.preload()
