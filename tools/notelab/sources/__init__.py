"""Providers of cited text. Every file is checked against its blob id, whoever delivers it."""
