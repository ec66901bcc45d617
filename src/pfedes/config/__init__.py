"""The configuration of a run: `Config` says what is run, `configure` builds it."""

from pfedes.config.building import (
    configure,
    configure_from,
    on_cluster,
    parse_setting,
    stored_config,
    validate,
    with_method_imported,
)
from pfedes.config.config import SERVER_SIDE, WHO, Config, digest_of

__all__ = [
    "SERVER_SIDE",
    "WHO",
    "Config",
    "configure",
    "configure_from",
    "digest_of",
    "on_cluster",
    "parse_setting",
    "stored_config",
    "validate",
    "with_method_imported",
]
