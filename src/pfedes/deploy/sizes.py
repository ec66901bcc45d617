"""The largest messages that FLARE's processes accept, passed in their environment."""

MEBIBYTE = 2**20
# What FLARE allows is 2 GB for a message, and 4 GB for one that comes in pieces.
VARIABLES = ("NVFLARE_MAX_MESSAGE_SIZE", "NVFLARE_STREAMING_MAX_BLOB_SIZE")


def size_limits(mebibytes: int) -> dict[str, str]:
    """The environment of FLARE's processes, which those that they start inherit."""
    return dict.fromkeys(VARIABLES, str(mebibytes * MEBIBYTE))
