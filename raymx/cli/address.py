"""Which addresses of a cluster commands take. The doctor needs it too, where hardly anything is installed."""

from __future__ import annotations


def refusal(address: str, *, submits: bool = False) -> str:
    """Why a command does not take this ``--address`` or RAY_ADDRESS, and what it takes; "" for one that it may.

    ``submits``: it talks to the dashboard, as ``raymx.submit`` and notebooks do; others connect to the cluster itself.
    """
    scheme, _, rest = address.rpartition("://")
    host = rest.partition("/")[0].rpartition(":")[0] or rest.partition("/")[0] or "HOST"
    named = f"{address} (--address or RAY_ADDRESS)"
    if scheme == "ray":
        return (
            f"{named}: ray:// is Ray Client, which raymx cannot use; give {host}:6379 or, to submit, http://{host}:8265"
        )
    if scheme in ("http", "https") and not submits:
        return (
            f"{named} is a cluster's dashboard, to which runs are submitted; to connect to the cluster give {host}:6379"
        )
    return ""
