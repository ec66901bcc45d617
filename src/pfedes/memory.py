"""Memory that one step frees is kept for the next one."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def keep_freed_memory() -> None:
    """Tells the allocator not to return less than 1 GB at a time to the system.

    Every step frees what the next one asks for again. By default, the larger blocks go back and
    forth: the system hands out pages filled with zeros, at the cost of a tenth of the training.
    Allocators other than glibc's are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**30)
        mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)  # older ones' greatest
