"""What ui.perfetto.dev opens: the same Chrome trace JSON, plain or gzip (a name that ends in .gz)."""

from stepscope.exporters.chrome import export

__all__ = ["ENDINGS", "FILE", "export"]
FILE = "trace.json.gz"
ENDINGS = (".json", ".gz", ".pftrace", ".perfetto-trace")
