"""Compiles the theme's templates once for all builds of a process."""

from jinja2.bccache import Bucket, BytecodeCache


class CompiledTemplates(BytecodeCache):
    """Keeps templates' bytecode in memory; jinja2 itself checks that their source is the same."""

    def __init__(self) -> None:
        self._bytecode: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the bytecode into the bucket if its template was compiled before."""
        if bucket.key in self._bytecode:
            bucket.bytecode_from_string(self._bytecode[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store the bytecode of a template."""
        self._bytecode[bucket.key] = bucket.bytecode_to_string()
