"""The link "fast-gloo": collectives over gloo, made of exchanges or relayed by one rank."""

from shardlab.links.fast_gloo.link import FastGlooLink, connect

__all__ = ["FastGlooLink", "connect"]
